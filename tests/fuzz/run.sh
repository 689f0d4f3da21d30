#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds the fuzz target with clang's libFuzzer and sanitizers, and runs it RUNS times:
#   run.sh [RUNS]
# The inputs to begin with are in tests/fuzz/rendezvous; those that reach new code are kept in
# build/corpus, one that breaks it, in build/.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build/corpus
clang -std=c11 -Wall -Wextra -Werror -O1 -g \
	-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Icommon -Iblocks \
	-o build/fuzz_rendezvous tests/fuzz/fuzz_rendezvous.c \
	common/{pattern,device,hints,options,report}.c blocks/{work,layout}.c -libverbs
build/fuzz_rendezvous -runs="${1:-10000000}" -max_len=1100 -timeout=10 -print_final_stats=1 \
	-artifact_prefix=build/rendezvous- build/corpus tests/fuzz/rendezvous
