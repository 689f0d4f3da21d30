# SPDX-License-Identifier: BSD-2-Clause
# RDMA course on Soft-RoCE. The targets, one line each: make help

SAMPLES  := $(patsubst %/Makefile,%,$(sort $(wildcard [0-9][0-9]_*/Makefile)))
# Directory and program of each sample: 03_read/read.
PROGRAMS := $(foreach s,$(SAMPLES),$(s)/$(basename $(notdir $(wildcard $(s)/*.c))))
# What a student writes, in directories like my05: make starter.
MINE     := $(sort $(wildcard my[0-9][0-9]/Makefile))

# Virtual time repeats to a fraction of a per cent: few rounds do.
CLOCK  := $(if $(REAL),,TESTENV_CLOCK=virtual)
ROUNDS := $(if $(REAL),11,3)

##@ Run

all: $(SAMPLES) ## build every sample (one alone: cd 03_read && make)

$(SAMPLES): .objects
	@$(MAKE) --no-print-directory -C $@

.objects: # of common/ and blocks/, before several samples want them at a time
	@$(MAKE) --no-print-directory -C 05_gather_write objects

deps: ## install what building and running take, if anything is missing
	@testenv/deps.sh build
	@testenv/testenv.sh has-device || testenv/deps.sh vm

demo: deps ## install what is missing, run every pair on Soft-RoCE, show both sides
	@$(MAKE) --no-print-directory -s all
	@for own in $(MINE:/Makefile=); do $(MAKE) --no-print-directory -s -C $$own || :; done
	@testenv/testenv.sh run testenv/demo.sh $(PROGRAMS) \
		$(foreach own,$(MINE:/Makefile=),$(own)/$(basename $(notdir $(wildcard $(own)/*.c))))

shell: deps ## a shell with an RDMA device; once more in a second terminal joins it
	@mkdir -p results
	@testenv/testenv.sh shell

# The sample that LAB=03 names: 03_read/read.
lab = $(or $(filter $(LAB)_%,$(PROGRAMS)),$(error LAB=$(LAB) is no sample's number))

wire: LAB ?= 01
wire: pcap = results/wire/$(notdir $(lab)).pcap
wire: ## run a sample between two hosts and show its packets, also if it fails (LAB=03, ARGS="--size 1K")
	@testenv/deps.sh build vm wire
	@mkdir -p results/wire
	@$(MAKE) --no-print-directory -s -C $(dir $(lab))
	@rm -f $(pcap); cd $(dir $(lab)) && { TESTENV_HOSTS=2 ../testenv/testenv.sh run ../testenv/capture.sh \
		../$(pcap) ../testenv/pair.sh ./$(notdir $(lab)) $(ARGS); status=$$?; cd ..; \
		[ ! -s $(pcap) ] || { witness/ladder.py $(pcap) && echo "all of it: wireshark $(pcap)"; }; exit $$status; }

doctor: ## what this machine has for RDMA, what is wrong and the fix; for pasting into a question
	@testenv/doctor.sh

rxe-up: ## as root: add Soft-RoCE to this machine (NETDEV=eth0 names the interface)
	@testenv/testenv.sh rxe-up $(NETDEV)

rxe-down: ## as root: remove it again
	@testenv/testenv.sh rxe-down

.PHONY: all $(SAMPLES) .objects deps demo shell wire doctor rxe-up rxe-down

##@ Learn

starter: ## LAB=05 [DIR=my05]: a lab's program (01 to 13), without what is yours to write
	@learn/starter.py make "$(LAB)" "$(DIR)"

check: deps ## LAB=05 [DIR=my05]: which parts of your program are right, and what is wrong
	@testenv/deps.sh vm
	@learn/check/check.py check "$(LAB)" "$(DIR)"

hint: deps ## LAB=05 [DIR=my05]: a hint for the first part that is not right; again: a plainer one
	@testenv/deps.sh vm
	@learn/check/check.py hint "$(LAB)" "$(DIR)"

watch: deps ## LAB=05 [DIR=my05]: check after each change of the program
	@testenv/deps.sh vm
	@learn/check/check.py watch "$(LAB)" "$(DIR)"

progress: ## which labs you have begun, and how far you are
	@learn/check/check.py progress

break: deps ## STEP=07: predict what a change breaks, run it, see why; into answers.txt (WIRE=no: no packets)
	@learn/break.py "$(STEP)"

answers: ## make answers.txt with a place for each answer, or say which are missing
	@learn/answers.py

show: LAB ?= 01
show: ## step through a run in the browser: memory, queues, packets (LAB=05 [DIR=my05] ARGS="--size 1K" HOSTS=1)
	@testenv/deps.sh build vm wire
	@learn/show/show.py "$(LAB)" "$(DIR)" $(ARGS)

cheatsheet: ## statuses, attributes, rights, operations and limits: the section of labs.md (LAB_LANG=zh: in Chinese)
	@awk '/^## /{on=/Cheat sheet|速查表/} on' $(if $(filter zh%,$(or $(LAB_LANG),$(LC_ALL),$(LC_MESSAGES),$(LANG))),labs.zh.md,labs.md) | \
		sed '/^## /,/^$$/d;/^`make/,/^$$/d;/^|-/d;s/](#[^)]*)//g;s/[][`*]//g'

handin: deps ## STUDENT=ID [LAB=05]: run all with your layout; pack what you hand in
	@$(MAKE) --no-print-directory -s all
	@grading/handin.sh "$(STUDENT)" "$(or $(LAB),05)" "$(DIR)" "$(ANSWERS)"

.PHONY: starter check hint watch progress break answers show cheatsheet handin

##@ Below the verbs

export TOPOLOGY HOSTS ROUTING
fabric: ## a shell in a simulated InfiniBand fabric with OpenSM (TOPOLOGY=torus|FILE HOSTS=8 ROUTING=updn)
	@testenv/deps.sh fabric
	@fabric/fabric.py start $(if $(COMMAND),'$(COMMAND)')

fabric-map: ## a page of such a fabric: a picture, LIDs, forwarding tables, paths (CUT="leaf1 spine1": after that)
	@testenv/deps.sh fabric
	@mkdir -p results
	@fabric/fabric.py start 'fabric-map results/fabric.html; [ -z "$(CUT)" ] || { cut $(CUT); fabric-map results/fabric.html; }'

.PHONY: fabric fabric-map

##@ Measure

bench: deps ## measure 05 to 07, or DIR=my05, in virtual time; figures under results/ (REAL=1: in real time)
	@testenv/deps.sh vm bench
	@$(MAKE) --no-print-directory -s all
	@mkdir -p results
	@[ -z "$(DIR)" ] || $(MAKE) --no-print-directory -s -C "$(DIR)"
	@$(CLOCK) TESTENV_LIMIT=1200 testenv/testenv.sh run bench/measure.sh "$(DIR:%/=%)" --iters=$(ROUNDS)
	@bench/plot.sh $(DIR:%/=%)

bench-peers: deps ## our contiguous transfers beside perftest's (REAL=1: in real time)
	@testenv/deps.sh vm bench
	@$(MAKE) --no-print-directory -s all
	@$(CLOCK) TESTENV_LIMIT=1200 testenv/testenv.sh run bench/peers.sh

bench-window: deps ## what lending memory costs, by a window or a region (REAL=1: in real time)
	@testenv/deps.sh vm
	@mkdir -p build
	@gcc -O2 -Wall -Icommon -o build/window bench/window.c common/*.c -libverbs
	@$(CLOCK) testenv/testenv.sh run build/window

.PHONY: bench bench-peers bench-window

##@ Teach

student-release: ## for instructors: all but the solutions of LABS="05 06 07" (LABS=all), as results/hello-verbs.tar.gz
	@learn/release.py $(or $(LABS),05 06 07)

grade: ## HANDINS=FOLDER: points and reasons for each hand-in, and a table
	@mkdir -p results
	@grading/grade.py --csv results/grades.csv --feedback results/feedback \
		$(if $(FORMAT),--format $(FORMAT)) $(GRADE) "$(HANDINS)"

grade-program: deps ## DIR=FOLDER [LAB=05]: run the programs of a class, or one
	@testenv/deps.sh vm
	@$(MAKE) --no-print-directory -s all
	@grading/program.py "$(or $(LAB),05)" "$(DIR)"

similar: ## DIR=FOLDER [LAB=05]: pairs of programs that are alike
	@grading/similar.py "$(or $(LAB),05)" "$(DIR)"

bundle: ## FORMAT=autolab|gradescope|classroom50|prairielearn [LAB=05]: what grades a lab there
	@grading/bundle.sh make "$(FORMAT)" "$(or $(LAB),05)"

.PHONY: student-release grade grade-program similar bundle

##@ Develop

test: ## install what is missing, test each kind of claim once (ONLY="PART…": some parts; ONLY=list)
	@testenv/deps.sh build vm wire fabric test
	@tests/run.sh quick

test-all: ## all tests: also sanitizers, faults, other kernels, processors and machines
	@testenv/deps.sh build vm wire bench fabric test test-all
	@tests/run.sh $(or $(TIER),all)

fuzz: ## throw 10 million mangled lines at what reads a stranger's (RUNS=...)
	@testenv/deps.sh build test
	@tests/fuzz/run.sh $(RUNS)

clean: ## remove what was built (the VM's kernel stays in ~/.cache/hello-verbs)
	@for s in $(SAMPLES); do $(MAKE) --no-print-directory -s -C $$s clean; done
	rm -rf build

help: ## this list
	@sed -n 's/^##@ //p; s/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS="|" read -r t d; do \
		if [ -n "$$d" ]; then printf "  make %-15s %s\n" "$$t" "$$d"; else printf "%s\n" "$$t"; fi; done

.PHONY: test test-all fuzz clean help
