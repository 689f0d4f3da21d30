#!/usr/bin/env bash
# The pair tests, once for each directory of built programs that is given. Runs where the
# device is.
here=$(dirname "$0")
status=0
for build in "$@"; do
	HV_BUILD=$build python3 "$here/test_pairs.py" | sed -u "s|__main__|${build##*/}|"
	[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
done
exit $status
