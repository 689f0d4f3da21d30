#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# agent.sh HOST COMMAND… - what mpirun takes in the place of ssh: there is but one other host
shift
exec "$(dirname "$(readlink -f "$0")")/../testenv/there.sh" bash -c "$*"
