# SPDX-License-Identifier: BSD-2-Clause
# What grade-program needs, built here of the suite's own sources: for each of 05 to 07 the
# reference and a peer that lies, the spy, and common/ and blocks/ as a library.
SAMPLES := $(wildcard 0[567]_*)
CFLAGS  := -std=c11 -O2 -Wall -Wextra -Wshadow -Wconversion -Icommon -Iblocks
PARTS   := $(wildcard common/*.[ch] blocks/*.[ch])
B       := grading/build

all: $(B)/course.a $(B)/spy.so $(foreach s,$(SAMPLES),$(foreach k,reference liar,$(B)/$k-$(word 1,$(subst _, ,$s))))

$(B)/course.a: $(PARTS)
	@mkdir -p $(B)
	cd $(B) && gcc $(CFLAGS:-I%=-I../../%) -c $(addprefix ../../,$(filter %.c,$^))
	ar rcs $@ $(patsubst %.c,$(B)/%.o,$(notdir $(filter %.c,$^)))

$(B)/spy.so: grading/spy.c $(PARTS)
	gcc $(CFLAGS) -fPIC -shared -fvisibility=hidden -o $@ $< \
		blocks/layout.c common/data.c common/report.c common/hints.c -libverbs

.SECONDEXPANSION:
$(B)/reference-%: $$(wildcard $$*_*/*.c) $(B)/course.a
	gcc $(CFLAGS) -o $@ $^ -libverbs

$(B)/liar-%: $$(wildcard $$*_*/*.c) grading/liar.c $(B)/course.a
	gcc $(CFLAGS) -o $@ $^ -libverbs -Wl,--wrap=pattern_fill,--wrap=pattern_right
