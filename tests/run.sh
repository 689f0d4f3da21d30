#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# run.sh [quick|rest|all] - the tests. quick: every kind of claim once, on one kernel, in some
# minutes. rest: what takes longer, and other kernels, libraries, processors and machines.
# ONLY="NAME…" runs these parts alone; ONLY=list names them.
#
# Each test prints a line "ok - name" or "not ok - name" ("# SKIP why" behind the name of
# one that was left out); the last line counts them. Pairs run in the VM, where they may
# take the device away; TESTENV=native runs them on this machine's own RDMA device.
set -u
cd "$(dirname "$0")/.." || exit 1
tier=${1:-quick}
unset MAKEFLAGS MFLAGS MAKELEVEL # or the makes in here say which directory they enter
export TESTENV=${TESTENV:-vm}
export HV_SOME=${HV_SOME:-$RANDOM} # see some() in samples.py
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
fast=max,-erms,-fsrm # QEMU's processor where no figures are looked at: it is emulated in less time

samples=(0*_* 1*_*)
out=$PWD/build
rm -rf "$out"
mkdir -p "$out"/{gcc,clang,lto,asan,unit}
log=$out/test.log

# One check: its name, and a command that has to succeed without a word on stderr.
step() {
	local name=$1 log=$out/step.$BASHPID
	shift
	if "$@" >"$log" 2>&1; then
		echo "ok - $name"
	else
		echo "not ok - $name"
		sed 's/^/# /' "$log"
	fi
}

build() { # flavour, compiler, flags: every sample, no warning let through
	make -s -j"$(nproc)" OUT="$out/$1" CC="$2" CFLAGS="-Werror $3" all
}

build_here() { # in the samples' directories, where make and other tests find them; copies in build/gcc
	local sample status
	make -s -k -j"$(nproc)" CC=gcc CFLAGS="-Werror -O2 -g" all
	status=$?
	for sample in "${samples[@]}"; do
		cp "$sample/$(sed -n 's/^SAMPLE = //p' "$sample/Makefile")" "$out/gcc"
	done
	return $status
}

# A copy of what git tracks or would track: what a student gets from a clone.
fresh_copy() {
	rm -rf "$out/copy"
	mkdir "$out/copy"
	git ls-files -z --cached --others --exclude-standard |
		xargs -0 cp --parents -t "$out/copy"
}

builds_alone() ( # by make and by the gcc line in its head comment, without a warning
	local sample=$1 program line
	fresh_copy
	program=$(sed -n 's/^SAMPLE = //p' "$sample/Makefile")
	cd "$out/copy/$sample" || return
	[ -z "$(make -s 2>&1 | tee /dev/stderr)" ] || return
	./"$program" --help || return
	rm "$program"
	line=$(sed -n 's/^ \*   \(gcc .*\)/\1/p' "$program.c")
	[ -z "$(bash -c "$line -Wall" 2>&1 | tee /dev/stderr)" ] || return
	./"$program" --help
)

leaves_nothing_untracked() {
	make -s || return
	! git status --porcelain --ignored=no | grep '^??' | grep -E '[0-9][0-9]_'
}

# A change of a header or of common's code rebuilds every sample; of a sample's file, that one.
change_rebuilds() ( # in a copy: the programs here may be running
	local changed sample affected
	fresh_copy
	cd "$out/copy" || return
	make -s -j"$(nproc)"
	for changed in common/{sample.mk,*.[ch]}; do
		touch "$changed"
		affected=(01_* 05_* 11_*) # of each kind one
		[ "$changed" != common/sample.mk ] || affected=("${samples[@]}")
		for sample in "${affected[@]}"; do
			! make -q -C "$sample" || { echo "$changed: $sample" && return 1; }
		done
		touch -d "1 hour ago" "$changed" # or nothing is shown of the next one
		make -q -C 01_hello_write || return
	done
	touch 03_read/read.c
	[ "$(make -C 03_read | grep -c ' -o ')" = 1 ] || return
	for sample in "${samples[@]}"; do
		make -q -C "$sample" || return
	done
)

help_lists_every_target() {
	make -s help >"$out/help"
	sed -n 's/^\.PHONY: //p' Makefile | tr ' ' '\n' | grep '^[a-z]' | while read -r target; do
		grep -q "^  make $target " "$out/help" || {
			echo "$target"
			return 1
		}
	done
}

# A program that prints such lines itself: its name, which goes into them, and the command.
family() {
	local name=$1 status
	shift
	"$@" 2>&1 | sed -u "s/__main__/$name/; s/- test_/- /; s/^\(ok\|not ok\) [0-9]* -/\1 - $name:/
		/^1\.\.[0-9]*$/d; /^# ok - /d"
	status=${PIPESTATUS[0]}
	[ "$status" -eq 0 ] || echo "not ok - $name as a whole: exit status $status"
}

greedy() { # a client of 10 that SENDs a message more than it has a credit for
	sed 's/i < opt->iters;/i <= opt->iters;/; s/i % BURST == 0/i == 0/; s/seed + i)/seed + i - (i == opt->iters))/' 10_srq/srq.c |
		gcc -Icommon -o "$out/greedy" -x c - -x none common/*.c -libverbs
}

# The pair tests with the programs of one directory, where the device is. Several of these
# run at a time here, on whatever machine: each test has its own limit, in the time of the VM (samples.py).
pairs() {
	local build=$1 within=()
	shift
	[ "$TESTENV" = native ] || within=(setarch -R) # see FIXED in samples.py
	[ ! -d "$build/programs" ] || within+=(tests/debian13.sh in)
	HV_BUILD=$build HV_OTHER_DEVICE=$out/other_device.so HV_FAIL_VERBS=$out/fail_verbs.so \
		HV_RIGHTS=$out/rights HV_ALL=$out/all HV_PROVOKE=$out/provoke TESTENV_LIMIT=3000 TESTENV_CPU=${TESTENV_CLOCK:+$fast} \
		TESTENV_PASS="HV_SOME HV_BUILD HV_OTHER_DEVICE HV_FAIL_VERBS HV_RIGHTS HV_ALL HV_PROVOKE ASAN_OPTIONS UBSAN_OPTIONS" \
		testenv/testenv.sh run "${within[@]}" python3 "${TESTS:-tests/test_pairs.py}" "$@"
}

# The same with a kernel that is not the VM's usual one.
newer_kernel=linux-image-6.12-amd64
newer() { # COMMAND…
	if apt-cache show "$newer_kernel" >/dev/null 2>&1; then
		KERNEL=$newer_kernel "$@"
	else
		echo "ok - __main__ # SKIP no package $newer_kernel here"
	fi
}

# What a student reads in each sample, in this order.
reads_in_order() {
	local sample=$1 file at=0 found pattern
	file=$(echo "$sample"/*.c)
	for pattern in 'parse_options(' 'rendezvous_open(' 'open_device(' 'ibv_alloc_pd(' 'ibv_create_cq(' 'ibv_reg_mr(' \
		'ibv_create_qp(' 'rendezvous_swap(' 'to_init' 'to_rtr' 'to_rts' 'struct ibv_sge ' \
		'struct ibv_send_wr ' 'ibv_post_send(' 'wait_completion(' 'Verify' \
		'rendezvous_verdict(' 'ibv_destroy_qp(' 'ibv_close_device(' 'report_result('; do
		found=$(awk -v at="$at" -v what="$pattern" \
			'NR > at && index($0, what) { print NR; exit }' "$file")
		[ -n "$found" ] || {
			echo "$file: no '$pattern' after line $at"
			return 1
		}
		at=$found
	done
}

unit_test() { # FILE NAME - a file that includes a C file, for what is static in there, replaces it
	local sources
	mapfile -t sources < <(printf '%s\n' common/*.c blocks/*.c |
		grep -vxF "$(sed -n 's|^#include "../../\(.*\.c\)"|\1|p' "$1" | grep . || echo none)")
	step "$2 builds" gcc -std=c11 -Wall -Wextra -Werror -g \
		-fsanitize=address,undefined -fno-sanitize-recover=all \
		-Icommon -Iblocks -o "$out/unit/$2" "$1" "${sources[@]}" -libverbs -lcmocka
	CMOCKA_MESSAGE_OUTPUT=TAP family "$2" without_errors "$out/unit/$2"
}

without_errors() { # they provoke hundreds, which tell something only if a test fails
	"$1" 2>"$1.errors" || { local status=$? && cat "$1.errors" && return $status; }
}

# --- The parts. Each is a function that prints such lines. In the VM's virtual time a deadline can't
# be missed because this machine is busy.
part_sources() { # builds, and what can be seen without running anything
	for sample in "${samples[@]}"; do
		step "$sample builds alone, by make and by its gcc line" builds_alone "$sample"
	done
	for sample in 0[1-4]_*; do
		step "$sample reads in order" reads_in_order "$sample"
	done
	step "clang -Werror" build clang clang "-O2 -g"
	step "gcc -O3 -flto -Werror" build lto gcc "-O3 -flto -Wextra" # sees across files
	step "a change rebuilds what it must" change_rebuilds
	step "builds leave nothing that git doesn't ignore" leaves_nothing_untracked
	step "lengths of functions, and what includes what" tests/shape.py
	step "make help lists every target" help_lists_every_target
	family zh python3 tests/test_zh.py Chinese Readme Words Glossary Tools
	# uint64_t and uintmax_t (%ju) are the same type with glibc, which gcc checks.
	step "cppcheck" cppcheck --quiet --std=c11 --enable=warning,performance,portability \
		--inline-suppr --suppress=invalidPrintfArgType_uint --suppress=invalidScanfArgType_int \
		--error-exitcode=1 -Icommon -Iblocks common blocks "${samples[@]}"
	step "clang-format" clang-format --dry-run -Werror {common,blocks}/*.[ch] [0-9]*/*.c bench/*.c \
		tests/unit/*.[ch] tests/fuzz/*.c tests/*.c tests/peer/*.c learn/show/*.c
	step "shfmt" shfmt -d testenv/*.sh bench/*.sh teach/*.sh tests/*.sh tests/fuzz/*.sh .ci/run
	if black --version 2>/dev/null | grep -q " 23\."; then # each year's style is another
		step "black" black -q -l 100 --check bench fabric judge learn teach tests
	else
		echo "ok - black # SKIP not that of 2023"
	fi
	step "shellcheck" shellcheck -x testenv/*.sh bench/*.sh teach/*.sh tests/*.sh tests/fuzz/*.sh \
		.ci/run
}
part_units() {
	for test in tests/unit/test_*.c; do
		unit_test "$test" "$(basename "$test" .c)"
	done
	step "100,000 mangled lines" tests/fuzz/run.sh 100000
	step "judge" gcc -Icommon -o "$out/judge" tests/fuzz/judge.c \
		common/{pattern,device,hints,options,report}.c -libverbs
	family lines python3 tests/test_lines.py
	family cheatsheet python3 tests/test_cheatsheet.py
	HV_BUILD=$out/gcc family usage python3 tests/test_usage.py
}
part_pairs() { TESTENV_CLOCK=virtual family pairs pairs "$out/gcc" Defaults Options Rights WrongPairs; }
part_layouts() { TESTENV_CLOCK=virtual family layouts pairs "$out/gcc" Layouts; }
several() { # NAME FILE[.CLASS]… - of several files, in one VM
	TESTENV_CLOCK=virtual TESTS=tests/samples.py family "$1" pairs "$out/gcc" "${@:2}"
}
part_peers() { several peers test_11.{Good,BothFamilies,Bad} test_devices test_peers; } # 11 wants to be the first to take the device away
part_more() {                                                                           # what the samples from 08 on have of their own; what takes long, or two hosts: parts crowd, recover
	several more test_hints test_08 test_09.{Pairs,Liars} test_10.{Pairs,Dying.test_gone_or_lying_at_each_step,Dying.test_one_that_sends_without_a_credit,Refused} test_12 test_13
}
part_handout() { TESTENV_CLOCK=virtual TESTENV_CPU=$fast HV_BUILD=$out/gcc family handout python3 tests/test_labs.py BreakIt Prose References; }
part_wires() { TESTENV_CLOCK=virtual TESTENV_CPU=$fast HV_BUILD=$out/gcc family wires python3 tests/test_labs.py Wires; } # of the handout
part_starters() {
	family starters python3 tests/test_starter.py Places HalfWay.test_the_last_is_the_sample \
		HalfWay.test_only_what_is_written_differs HalfWay.test_a_chinese_starter_has_the_same_code
}
part_break() { family break python3 tests/test_break.py Asked Answers \
	Driven.test_{on_a_terminal,nothing_is_run_without_a_prediction,a_tree_that_has_been_changed}; } # make break, answers.txt
part_fabric() { family fabric python3 tests/test_fabric.py; }
part_check_some() { family check-some python3 tests/test_check.py Check.test_{some,a_field_that_this_kernel_has_not,hints,todos,what_is_to_write}; }
part_grading() {
	family collect python3 tests/test_collect.py
	family bundles python3 tests/test_bundles.py Bundles.test_formats Bundles.test_contents
	family grading python3 tests/test_grading.py
}
part_wire() { # two hosts once
	TESTENV_HOSTS=2 TESTS=tests/samples.py family wire pairs "$out/gcc" test_wire.Good test_11.Hosts
}

# The rest. Sanitizers see what concerns memory: data of all sizes, layouts, strangers' bytes; not
# what takes the device away, or much memory.
part_programs() {
	TESTENV_CLOCK=virtual family charge testenv/testenv.sh run python3 tests/test_charge.py
	TESTENV_CPU=$fast family programs python3 tests/test_programs.py
}
part_handin() { family handin python3 tests/test_handin.py; }
part_platforms() { # one of them in a new root; what they differ in, test_formats and test_contents see
	HV_FORMATS=${HV_FORMATS:-gradescope} family platforms python3 tests/test_bundles.py Bundles.test_platforms
}
all_in_one() {
	local sample name objects=() names=''
	for sample in "${samples[@]}"; do
		name=$(sed -n 's/^SAMPLE = //p' "$sample/Makefile") names+="X($name)"
		objects+=("$out/$name.all.o")
		gcc -O2 -g -Icommon -Iblocks "-Dmain=main_$name" -c -o "$out/$name.all.o" "$sample/$name.c" || return
	done
	gcc -O2 -g -Icommon -Iblocks "-DSAMPLES=$names" -o "$out/all" tests/all.c "${objects[@]}" {common,blocks}/*.c -lrdmacm -libverbs
}
part_faults() {
	step "all samples in one program" all_in_one
	step "rights" gcc -Icommon -Iblocks -o "$out/rights" tests/rights.c {common,blocks}/*.c -libverbs
	TESTENV_CLOCK=virtual TESTS=tests/test_faults.py family faults pairs "$out/gcc" Verbs Rights Memcheck
}
part_check() { # make check: all labs, all half-written programs, all wrong ones
	family check python3 tests/test_check.py Check.test_samples_and_halves Check.test_mutants Check.test_blocks \
		Check.test_commands
}
part_break_all() { family break-all python3 tests/test_break.py Outcomes Driven.test_without_a_terminal; } # each step of the handout
part_half_way() { TESTENV_CLOCK=virtual TESTENV_CPU=$fast family half-way python3 tests/test_starter.py HalfWay Release; }
part_crowd() {
	TESTENV_CLOCK=virtual TESTS=tests/test_10.py family 10 pairs "$out/gcc" Dying OwnPairs OwnDying Crowd OwnCrowd
	TESTENV_HOSTS=2 TESTS=tests/test_09.py family 09 pairs "$out/gcc" Loss
}
part_recover() { # connections that break: of 14
	several recover test_14.{Breaks,Strangers,Ladder,Drawn}
	TESTENV_HOSTS=2 TESTS=tests/test_14.py family recover-wire pairs "$out/gcc" Wire
}
part_bad_wire() {
	TESTENV_HOSTS=2 TESTS=tests/test_wire.py family bad-wire pairs "$out/gcc" Bad Unreliable Cut Capture
	family ladder python3 tests/test_ladder.py
}
part_asan() {
	step "gcc with sanitizers" build asan gcc \
		"-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
	HV_BUILD=$out/asan family asan-usage python3 tests/test_usage.py
	TESTENV_CLOCK=virtual family asan pairs "$out/asan" Defaults Options.test_{message,sizes,iters} \
		Layouts.test_{07_every_method_by_every_layout,students_layout_and_many_messages}
	TESTENV_CLOCK=virtual TESTS=tests/test_peers.py family asan pairs "$out/asan"
}
part_large() {
	TESTENV_CLOCK=virtual family large pairs "$out/gcc" Large Bench
	family two-cpus pairs "$out/gcc" Defaults # where both sides really run at a time
}
part_python_peer() { TESTENV_CLOCK=virtual TESTS=tests/test_python_peer.py family python-peer pairs "$out/gcc"; }
part_dead() { TESTENV_CLOCK=virtual TESTS=tests/test_dead.py family dead pairs "$out/gcc"; }
part_show() { # a browser steps through runs of all samples
	family show python3 tests/test_show.py Samples One Broken Elsewhere
}
part_zh() { family zh python3 tests/test_zh.py TakenOut; }
part_doctor() { TESTENV_CLOCK=virtual TESTS=tests/test_doctor.py family doctor pairs "$out/gcc"; }
part_testenv() { family testenv python3 tests/test_testenv.py; }
part_kernels() { family kernels python3 tests/test_kernels.py; }
part_machines() { family machines python3 tests/test_machines.py; }
part_arm64() { family arm64 python3 tests/test_arm64.py; }
part_figures() { make -s -C 05_gather_write && family figures python3 tests/test_figures.py; }
figures_of() { # NAME COMMAND… - that runs the two that hold on each kernel
	make -s -C 05_gather_write && family "$1" "${@:2}" python3 tests/test_figures.py \
		Figures.test_two_runs_agree Figures.test_a_list_costs_what_it_does_on_other_kernels
}
part_newer() { # kernel 6.12, with this machine's rdma-core and Debian 13's
	figures_of figures-6.12 newer
	step "build with Debian 13's rdma-core" tests/debian13.sh build "$out/debian13"
	TESTENV_CLOCK=virtual family charge-6.12 newer testenv/testenv.sh run python3 tests/test_charge.py
	TESTENV_CLOCK=virtual HV_BUILD=$out/gcc family handout-6.12 newer python3 tests/test_labs.py BreakIt
	TESTENV_CLOCK=virtual family linux-6.12-rdma-core-13 newer pairs "$out/debian13" Defaults Rights \
		Layouts.test_07_every_method_by_every_layout
	TESTENV_CLOCK=virtual family linux-6.12 newer pairs "$out/gcc" Defaults Options Rights WrongPairs
}
part_newest() { # Debian unstable's kernel
	figures_of figures-newest tests/unstable.sh
	export -f pairs && export out fast
	TESTENV_CLOCK=virtual HV_BUILD=$out/gcc family handout-newest tests/unstable.sh python3 tests/test_labs.py BreakIt
	# shellcheck disable=SC2016 # for that bash
	TESTENV_CLOCK=virtual family linux-newest tests/unstable.sh bash -c \
		'pairs "$out/gcc" Defaults Options Rights WrongPairs'
}

# The longest first: at the end, two cores have something to do.
quick=(more handout peers grading pairs layouts sources wire check_some break starters units)
rest=(programs check faults show bad_wire crowd recover asan newer break_all platforms newest kernels half_way python_peer large dead testenv
	handin wires machines figures arm64 zh doctor fabric)
# What make student-release packs, without git: the tests of the programs that are written.
[ ! -e learn/reference ] || quick=(layouts pairs peers more units wire)
case $tier in
quick) parts=("${quick[@]}") ;;
rest) parts=("${rest[@]}") ;;
all) parts=("${quick[@]}" "${rest[@]}") ;;
*) echo "run.sh: quick, rest or all" >&2 && exit 2 ;;
esac
only=${ONLY:-}
unset ONLY # or what is tested takes it for its own
if [ "$only" = list ]; then
	printf '%s\n' "quick: ${quick[*]}" "rest: ${rest[*]}"
	exit
fi
if [ -n "$only" ]; then
	parts=()
	for part in $only; do
		declare -F "part_$part" >/dev/null || { echo "run.sh: no part $part (ONLY=list names them)" >&2 && exit 2; }
		parts+=("$part")
	done
fi

{
	step "the VM starts" testenv/testenv.sh run true &
	step "gcc -Werror" build_here
	step "fail_verbs.so" gcc -shared -fPIC -o "$out/fail_verbs.so" tests/fail_verbs.c
	step "expected.so" gcc -O2 -Wall -Wextra -Werror -shared -fPIC -o "$out/expected.so" tests/expected.c
	step "provoke" gcc -O1 -Wall -Wextra -Werror -Icommon -o "$out/provoke" tests/provoke.c common/*.c -libverbs
	step "greedy" greedy
	step "cm_peer" gcc -Wall -Wextra -Werror -o "$out/cm_peer" tests/peer/cm_peer.c -lrdmacm -libverbs
	step "other_device.so" gcc -shared -fPIC -o "$out/other_device.so" tests/other_device.c -libverbs
	wait
	mkdir -p results/wire
	# An emulated VM keeps a core busy, but some parts mostly wait. Two cores are enough for all of this.
	n=0
	trap 'for part in "${parts[@]}"; do [ -e "$out/times.$part" ] || echo "not ok - part $part has not come to its end"; done; exit 1' TERM
	for part in "${parts[@]}"; do
		[ "$(jobs -rp | wc -l)" -lt 4 ] || wait -n
		n=$((n + 1))
		echo "# part $n of ${#parts[@]}: $part, after $SECONDS s"
		{
			began=$SECONDS
			"part_$part"
			times >"$out/times.$part" # of the shell, and of its children
			echo "# part $part took $((SECONDS - began)) s; CPU $(tail -1 "$out/times.$part")"
		} &
	done
	wait
} | (trap "" TERM && exec tee "$log") # which tells what has not come to its end

count() { grep -cE "$1" "$log"; }
skipped=$(count '^ok .*# SKIP')
passed=$(($(count '^ok ') - skipped))
failed=$(count '^not ok ')
line="$passed passed, $failed failed"
echo "# of much that is alike some, HV_SOME=$HV_SOME; HV_SOME=all takes all"
[ "$skipped" -eq 0 ] || line="$line, $skipped skipped"
echo "# ${parts[*]}: $SECONDS s"
echo "$line"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
