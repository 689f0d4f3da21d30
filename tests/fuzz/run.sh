#!/usr/bin/env bash
# Builds the fuzz target with clang's libFuzzer and sanitizers, and runs it so many times:
#   run.sh [RUNS]
# The inputs to begin with lie in a directory named after the target; those that reach new
# code are kept in build/corpus, one that breaks it, in build/.
set -eu
cd "$(dirname "$0")/../.."
target=rendezvous
mkdir -p "build/corpus/$target"
clang -std=c11 -Wall -Wextra -Werror -O1 -g \
	-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	-Icommon -o "build/fuzz_$target" "tests/fuzz/fuzz_$target.c" common/*.c -libverbs
"build/fuzz_$target" -runs="${1:-10000000}" -max_len=4096 -timeout=10 -print_final_stats=1 \
	-artifact_prefix="build/$target-" "build/corpus/$target" "tests/fuzz/$target"
