# SPDX-License-Identifier: BSD-2-Clause
# RDMA course on Soft-RoCE. The targets, one line each: make help

SAMPLES  := $(patsubst %/Makefile,%,$(sort $(wildcard [0-9][0-9]_*/Makefile)))
# Directory and program of each sample: 03_read/read.
PROGRAMS := $(foreach s,$(SAMPLES),$(s)/$(basename $(notdir $(wildcard $(s)/*.c))))
# A verdict is no failure of make, whose "*** Error 1" would be the last that is read: make check and make
# show end with 0 once they have looked (NOT_YET). For scripts judge/check.py check 05 ends with 1.
# What a student writes, in directories like my05: make starter.
MINE     := $(sort $(wildcard my[0-9][0-9]/Makefile))

# Virtual time repeats to a fraction of a per cent: few rounds do.
CLOCK  := $(if $(REAL),,TESTENV_CLOCK=virtual)
ROUNDS := $(if $(REAL),11,3)

# Without V=1, and without make's -s, a line for each sample instead of the commands.
BRIEF := $(if $(or $(V),$(findstring s,$(firstword -$(filter-out --%,$(MAKEFLAGS))))),,-s BRIEF=yes)
ZH := $(filter zh% ZH%,$(firstword $(LAB_LANG) $(LC_ALL) $(LC_MESSAGES) $(LANG)))
said = $(strip $(if $(ZH),$2,$1))

##@ Run ## 运行

all: $(SAMPLES) ## build every sample (V=1 shows the commands; one alone: cd 03_read && make) ## 编译所有示例（V=1 显示命令；只编译一个：cd 03_read && make）
	$(if $(BRIEF),@echo "$(call said,All samples are built. Next: make demo runs each of them; labs.md is the course,\
		示例都已编译。下一步：make demo 运行全部示例；课程从 labs.zh.md 开始)",@:)

$(SAMPLES): .objects
	@$(MAKE) --no-print-directory $(BRIEF) -C $@

.objects: # of common/ and blocks/, before several samples want them at a time
	@$(MAKE) --no-print-directory $(BRIEF) -C 05_gather_write objects

deps: ## install what building and running take, if anything is missing ## 安装编译和运行所缺的软件包
	@testenv/deps.sh build
	@testenv/testenv.sh has-device || testenv/deps.sh vm

demo: deps ## install what is missing, run every pair on Soft-RoCE, show both sides ## 安装所缺的软件包，在 Soft-RoCE 上运行每一对程序，显示两端的输出
	@$(MAKE) --no-print-directory -s all
	@for own in $(MINE:/Makefile=); do $(MAKE) --no-print-directory -s -C $$own || :; done
	@testenv/testenv.sh run testenv/demo.sh $(PROGRAMS) \
		$(foreach own,$(MINE:/Makefile=),$(own)/$(basename $(notdir $(wildcard $(own)/*.c))))

shell: deps ## a shell with an RDMA device; once more in a second terminal joins it ## 打开一个有 RDMA 设备的 shell；在第二个终端里再运行一次，就进入同一环境
	@mkdir -p results
	@testenv/testenv.sh shell

# The sample that LAB=03 names: 03_read/read.
lab = $(or $(filter $(LAB)_%,$(PROGRAMS)),$(error $(call said,LAB=$(LAB) is no sample's number,LAB=$(LAB) 不是实验的编号)))

wire: LAB ?= 01
wire: pcap = results/wire/$(notdir $(lab)).pcap
wire: ## run a sample between two hosts and show its packets, also if it fails (LAB=03, ARGS="--size 1K") ## 在两台主机之间运行一个示例并显示它的包，失败时也显示（LAB=03, ARGS="--size 1K"）
	@testenv/deps.sh build vm wire
	@mkdir -p results/wire
	@$(MAKE) --no-print-directory -s -C $(dir $(lab))
	@rm -f $(pcap); cd $(dir $(lab)) && { TESTENV_HOSTS=2 ../testenv/testenv.sh run ../testenv/capture.sh \
		../$(pcap) ../testenv/pair.sh ./$(notdir $(lab)) $(ARGS); status=$$?; cd ..; \
		[ ! -s $(pcap) ] || { judge/ladder.py $(pcap) && echo "all of it: wireshark $(pcap)"; }; exit $$status; }

doctor: ## what this machine has for RDMA, what is wrong and the fix; for pasting into a question ## 这台机器有哪些 RDMA 条件、有什么问题、怎样解决；提问时可以贴上它的输出
	@testenv/doctor.sh

rxe-up: ## as root: add Soft-RoCE to this machine (NETDEV=eth0 names the interface) ## 以 root 身份：给这台机器加一个 Soft-RoCE 设备（NETDEV=eth0 指定网络接口）
	@testenv/testenv.sh rxe-up $(NETDEV)

rxe-down: ## as root: remove it again ## 以 root 身份：删除该设备
	@testenv/testenv.sh rxe-down

.PHONY: all $(SAMPLES) .objects deps demo shell wire doctor rxe-up rxe-down

##@ Learn ## 学习

starter: ## LAB=05 [DIR=my05]: a lab's program (01 to 18), without what is yours to write ## LAB=05 [DIR=my05]：生成一个实验（01 到 18）的程序，其中要你写的部分留空
	@learn/starter.py make "$(LAB)" "$(DIR)"

ifeq ($(LAB),fabric) # the forwarding tables of fabric/README.md, step 3
check:
	@testenv/deps.sh fabric
	@TOPOLOGY=fabric/four.net fabric/fabric.sh start 'check-tables "$(or $(FILE),mine)"; :'
else ifeq ($(LAB),above) # the table of above/README.md, step 7
check:
	@testenv/deps.sh wire
	@above/proof.py check "$(or $(FILE),mine.above)"
else
check: deps ## LAB=05 [DIR=my05]: which parts of your program are right, and what is wrong (LAB=fabric or LAB=above [FILE=mine]: your tables) ## LAB=05 [DIR=my05]：你的程序哪些部分正确，哪里有错（LAB=fabric 或 LAB=above [FILE=mine]：你填的表）
	@testenv/deps.sh vm
	@NOT_YET=0 judge/check.py check "$(LAB)" "$(DIR)"
endif

hint: deps ## LAB=05 [DIR=my05]: a hint for the first part that is not right; again: a plainer one ## LAB=05 [DIR=my05]：给第一个不正确的部分一条提示；再运行一次，提示更直白
	@testenv/deps.sh vm
	@judge/check.py hint "$(LAB)" "$(DIR)"

watch: deps ## LAB=05 [DIR=my05]: check after each change of the program ## LAB=05 [DIR=my05]：程序每改一次就检查一次
	@testenv/deps.sh vm
	@judge/check.py watch "$(LAB)" "$(DIR)"

progress: ## which labs you have begun, and how far you are ## 你开始了哪些实验，各做到哪里
	@judge/check.py progress

break: deps ## STEP=07: predict what a change breaks, run it, see why; into answers.txt (WIRE=no: no packets) ## STEP=07：先预测一处改动会破坏什么，再运行，看原因；结果写入 answers.txt（WIRE=no：不显示包）
	@learn/break.py "$(STEP)"

answers: ## make answers.txt with a place for each answer, or say which are missing ## 生成 answers.txt，每个问题留有答案的位置；或者指出还缺哪些答案
	@learn/answers.py

show: LAB ?= 01
show: ## step through a run in the browser: memory, queues, packets (LAB=05 [DIR=my05] ARGS="--size 1K" HOSTS=1) ## 在浏览器中逐步查看一次运行：内存、队列、包（LAB=05 [DIR=my05] ARGS="--size 1K" HOSTS=1）
	@testenv/deps.sh build vm wire
	@NOT_YET=0 learn/show/show.py "$(LAB)" "$(DIR)" $(ARGS)

cheatsheet: ## statuses, attributes, rights, operations and limits: from reference.md (LAB_LANG=zh: in Chinese) ## 状态码、属性、访问权限、操作和限制：摘自 reference.zh.md（LAB_LANG=zh：中文）
	@awk '/^## /{on=/Cheat sheet|速查表/} on' $(if $(ZH),reference.zh.md,reference.md) | \
		sed '/^## /,/^$$/d;/^`make/,/^$$/d;/^|-/d;s/](#[^)]*)//g;s/[][`*]//g'

handin: deps ## STUDENT=ID [LAB=05]: run all with your layout; pack what you hand in ## STUDENT=学号 [LAB=05]：用你的布局运行全部，打包要上交的内容
	@$(MAKE) --no-print-directory -s all
	@teach/handin.sh "$(STUDENT)" "$(or $(LAB),05)" "$(DIR)"

.PHONY: starter check hint watch progress break answers show cheatsheet handin

##@ Below the verbs ## verbs 的下层

fabric: ## a shell in a simulated InfiniBand fabric with OpenSM (TOPOLOGY=torus|FILE HOSTS=8 ROUTING=updn) ## 在模拟的 InfiniBand 网络里打开 shell，带真正的 OpenSM（TOPOLOGY=torus|文件 HOSTS=8 ROUTING=updn）
	@testenv/deps.sh fabric
	@fabric/fabric.sh start $(if $(COMMAND),'$(COMMAND)')

fabric-map: ## a page of such a fabric: a picture, LIDs, forwarding tables, paths (CUT="leaf1 spine1": after that) ## 这样一个网络的网页：图、LID、转发表、路径（CUT="leaf1 spine1"：断开之后）
	@testenv/deps.sh fabric
	@mkdir -p results
	@fabric/fabric.sh start 'fabric-map results/fabric.html; [ -z "$(CUT)" ] || { cut $(CUT); fabric-map results/fabric.html; }'

fabric-growth: ## what OpenSM costs from 8 to 10,000 hosts, as a picture (installs gnuplot and perftest, takes some minutes; SIZES="8 72": these) ## OpenSM 的开销怎样随主机数从 8 到 10,000 增长，画成图（先安装 gnuplot 和 perftest，要几分钟；SIZES="8 72"：只测这些）
	@testenv/deps.sh fabric bench
	@mkdir -p results
	@fabric/growth.sh $(SIZES)

.PHONY: fabric fabric-map fabric-growth

##@ Above the verbs ## verbs 的上层

above: ## move data by NVMe, NFS, iSCSI, MPI and others over RDMA, and prove it by the packets (APP=nvme: one; BY=tcp: without) ## 让 NVMe、NFS、iSCSI、MPI 等通过 RDMA 搬运数据，并用抓到的包证明（APP=nvme：只做一个；BY=tcp：不用 RDMA）
	@above/run.sh $(APP)

.PHONY: above

##@ Measure ## 测量

bench: deps ## measure 05 to 07, or DIR=my05, in virtual time (installs gnuplot and perftest); figures under results/ (REAL=1: in real time) ## 在虚拟时间里测量 05 到 07，或 DIR=my05；先安装 gnuplot 和 perftest，图在 results/（REAL=1：真实时间）
	@testenv/deps.sh vm bench
	@$(MAKE) --no-print-directory -s all
	@mkdir -p results
	@[ -z "$(DIR)" ] || $(MAKE) --no-print-directory -s -C "$(DIR)"
	@$(CLOCK) TESTENV_LIMIT=1200 testenv/testenv.sh run bench/measure.sh "$(DIR:%/=%)" --iters=$(ROUNDS)
	@bench/plot.sh $(DIR:%/=%)

bench-peers: deps ## our contiguous transfers beside perftest's (REAL=1: in real time) ## 我们的连续传输与 perftest 的对比（REAL=1：真实时间）
	@testenv/deps.sh vm bench
	@$(MAKE) --no-print-directory -s all
	@$(CLOCK) TESTENV_LIMIT=1200 testenv/testenv.sh run bench/peers.sh

bench-mpi: deps ## the assignment's data by Open MPI, libfabric and UCX, beside 05 and 07 (installs Open MPI, 100 MB or more) ## 作业的数据由 Open MPI、libfabric 和 UCX 传送，与 05、07 对比（安装 Open MPI，100 MB 以上）
	@testenv/deps.sh vm above-mpi above-iov
	@$(MAKE) --no-print-directory -s all
	@mkdir -p build
	@mpicc -O2 -Wall -Wextra -o build/vector bench/vector.c -lucp -lucs -lfabric
	@$(CLOCK) TESTENV_PASS=BLOCKS TESTENV_LIMIT=1800 testenv/testenv.sh run bench/mpi.sh

bench-window: deps ## what lending memory costs, by a window or a region (REAL=1: in real time) ## 把内存临时授权给对端的开销：用内存窗口，或用内存区域（REAL=1：真实时间）
	@testenv/deps.sh vm
	@mkdir -p build
	@gcc -O2 -Wall -Icommon -o build/window bench/window.c common/*.c -libverbs
	@$(CLOCK) testenv/testenv.sh run build/window

.PHONY: bench bench-peers bench-mpi bench-window

##@ Teach ## 教学

student-release: ## for instructors: all but the solutions of LABS="05 06 07" (LABS=all), as results/hello-verbs.tar.gz ## 教师用：除 LABS="05 06 07"（LABS=all）的答案以外的全部内容，打包为 results/hello-verbs.tar.gz
	@teach/release.py $(or $(LABS),05 06 07)

grade: ## HANDINS=FOLDER [GRADE="--roster FILE --answers FILE"]: points and reasons for each hand-in, and a table ## HANDINS=目录 [GRADE="--roster 文件 --answers 文件"]：每份作业的得分和理由，以及总表
	@mkdir -p results
	@teach/grade.py --out results $(GRADE) "$(HANDINS)"

grade-program: deps ## DIR=FOLDER [LAB=05] [JOBS=2]: run the programs of a class, or one ## DIR=目录 [LAB=05] [JOBS=2]：运行一个班或一个人的程序
	@testenv/deps.sh vm
	@$(MAKE) --no-print-directory -s all
	@teach/program.py "$(or $(LAB),05)" "$(DIR)"

similar: ## DIR=FOLDER [LAB=05]: pairs of programs that are alike ## DIR=目录 [LAB=05]：找出相似的程序
	@teach/similar.py "$(or $(LAB),05)" "$(DIR)"

bundle: ## FORMAT=autolab|gradescope|classroom50|prairielearn [LAB=05]: what grades a lab there ## FORMAT=autolab|gradescope|classroom50|prairielearn [LAB=05]：在这些平台上给一个实验评分的文件包
	@teach/bundle.sh make "$(FORMAT)" "$(or $(LAB),05)"

.PHONY: student-release grade grade-program similar bundle

##@ Develop ## 开发

tests = pytest tests -m "$1" $(if $(filter list,$(ONLY)),--collect-only -qq,--only="$(ONLY)")

test: ## install what is missing, test each kind of claim once (ONLY="PART…": some parts, or as pytest -k; ONLY=list) ## 安装所缺的软件包，每类说法测试一次（ONLY="PART…"：部分测试，或 pytest -k 的表达式；ONLY=list）
	@testenv/deps.sh build vm wire test
	@$(call tests,quick)

test-all: ## all tests: also sanitizers, faults, other kernels, processors and machines ## 全部测试：还包括 sanitizer、故障、其他内核、处理器和机器
	@testenv/deps.sh build vm wire bench fabric test newer test-all
	@$(call tests,$(if $(filter quick rest,$(TIER)),$(TIER),quick or rest))

fuzz: ## throw 10 million mangled lines at what reads a stranger's (RUNS=...) ## 把一千万行残缺的文本喂给读取外来输入的代码（RUNS=...）
	@testenv/deps.sh build test
	@tests/fuzz/run.sh $(RUNS)

clean: ## remove what was built (the VM's kernel stays in ~/.cache/hello-verbs) ## 删除编译结果（虚拟机的内核仍保留在 ~/.cache/hello-verbs）
	@for s in $(SAMPLES); do $(MAKE) --no-print-directory -s -C $$s clean; done
	rm -rf build

help: ## this list ## 显示这个列表
	@sed -n 's/^##@ \(.*\) ## \(.*\)/$(call said,\1,\2)/p; s/^\([a-z-]*\):.* ## \(.*\) ## \(.*\)/\1|$(call said,\2,\3)/p' Makefile | \
		while IFS="|" read -r t d; do \
		if [ -n "$$d" ]; then printf "  make %-15s %s\n" "$$t" "$$d"; else printf "%s\n" "$$t"; fi; done

.PHONY: test test-all fuzz clean help
