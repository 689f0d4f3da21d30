# SPDX-License-Identifier: BSD-2-Clause
# Builds one sample from its own C file, common/ and, for 05 to 07, blocks/. A sample's
# Makefile sets SAMPLE, the name of that file without .c, BLOCKS and LIBS (-lrdmacm), and includes it.
# The objects of common/ and blocks/ are in build/objects, for all samples; those of make CFLAGS="…" in a
# place of their own: with a sanitizer's, the other samples would not link.
#
#   make          build it
#   make run      run a server and a client; ARGS="..." goes to the client
#                 HOSTS=2: on two hosts, which are VMs joined by a wire
#   make clean    remove what was built

ifeq ($(origin CC),default)
CC       = gcc
endif
CFLAGS  ?= -O2 -g
WARNINGS = -std=c11 -Wall -Wextra -Wshadow -Wconversion
# Where the program goes: elsewhere for builds with other compilers or sanitizers.
OUT     ?= .
HOSTS   ?= 1
DIRS     = ../common $(BLOCKS)
FLAGS   := $(if $(filter command,$(origin CFLAGS)),$(firstword $(shell echo '$(subst ','\'',$(CFLAGS))' | cksum)))
OBJECTS  = $(if $(filter .,$(OUT)),../build/objects$(FLAGS),$(OUT)/objects)
PARTS    = $(patsubst %.c,$(OBJECTS)/%.o,$(notdir $(wildcard $(DIRS:=/*.c))))
HEADERS  = $(wildcard $(DIRS:=/*.h)) ../common/sample.mk
COMPILE  = $(CC) $(WARNINGS) $(CFLAGS) $(DIRS:%=-I%)
ZH       = $(filter zh% ZH%,$(firstword $(LAB_LANG) $(LC_ALL) $(LC_MESSAGES) $(LANG)))
IN_VM    = $(if $(ZH),这里不能写入：请在虚拟机外编译,read-only here: build outside the VM)
NOT_MINE = $(if $(ZH),你无法写入 $$PWD/$(@D)：请把项目复制到你能写入的地方,you cannot write to $$PWD/$(@D): copy the project to where you can)
READONLY = { test ! -e /run/testenv || echo "$(IN_VM)" >&2; test -e /run/testenv || echo "$(NOT_MINE)" >&2; exit 1; }
vpath %.c $(DIRS)

$(OUT)/$(SAMPLE): $(SAMPLE).c $(PARTS) $(HEADERS) Makefile
	@test -w $(@D) || $(READONLY)
	$(if $(BRIEF),@echo "  $(SAMPLE)")
	$(COMPILE) -o $@ $(filter %.c %.o,$^) $(LDFLAGS) $(LIBS) -libverbs

# By another name first: another make may be doing the same.
$(OBJECTS)/%.o: %.c $(HEADERS)
	@mkdir -p $(@D) 2>/dev/null; test -w $(@D) || $(READONLY)
	$(COMPILE) -c -o $@.$$$$ $< && mv $@.$$$$ $@

objects: $(PARTS)

run: $(OUT)/$(SAMPLE)
	TESTENV_HOSTS=$(HOSTS) ../testenv/testenv.sh run ../testenv/pair.sh $(OUT)/$(SAMPLE) $(ARGS)

clean:
	rm -f $(SAMPLE)

.PHONY: run objects clean
