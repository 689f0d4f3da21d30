#!/usr/bin/env bash
# Builds the fuzz target with clang's libFuzzer and sanitizers, and runs it so many times:
#   run.sh [RUNS]
# Inputs that reach new code are kept in build/corpus; one that breaks it, in build/.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/corpus
clang -std=c11 -Wall -Wextra -Werror -O1 -g \
	-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	-Icommon -o build/fuzz_rendezvous tests/fuzz/fuzz_rendezvous.c common/*.c -libverbs
build/fuzz_rendezvous -runs="${1:-10000000}" -max_len=1025 -timeout=10 -print_final_stats=1 \
	-artifact_prefix=build/ build/corpus tests/fuzz/corpus
