#!/bin/bash
# starter.sh - the assignment's samples without what the student has to write
#
#   starter.sh make LAB [DIR]   writes the starter of a lab (05, 06, 07) into the new
#                               directory DIR (else my05, ...) beside the samples
#   starter.sh release          packs all but the solutions: results/hello-verbs.tar.gz
#
# A function whose opening brace carries the comment "LAB: ..." is for the student to
# write. Its comments stay, they are its specification; its body becomes a TODO.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
	echo "starter: $*" >&2
	exit 1
}

starter() { # FILE - prints it with a TODO for each body
	# shellcheck disable=SC2016 # awk's $0
	awk '
	/^[a-z].*\(/ { head = "" } # a function may begin here
	{ head = head " " $0 }
	/^{ \/\* LAB: / {
		todo++
		what = $0
		gsub(/^{ \/\* LAB: | \*\/$/, "", what)
		name = head
		sub(/\(.*/, "", name)
		sub(/.*[ *]/, "", name)
		params = head
		sub(/[^(]*\(/, "", params)
		sub(/\).*/, "", params)
		unused = called = ""
		n = split(params, param, ",")
		for (i = 1; i <= n; i++) {
			sub(/.*[ *]/, "", param[i])
			unused = unused (i > 1 ? ", " : "") "(void)" param[i]
		}
		cut = 1
		next
	}
	cut && /^}/ { # the functions above that only this one calls are in use as well
		printf "{\n    /* TODO %d: %s. */\n    %s;\n", todo, what, unused
		if (called)
			printf "    %s;\n", called
		printf "    die(0, \"%s is yet to be written (TODO %d): \"\n", name, todo
		printf "           \"%s\");\n", what
		written[name]
		cut = 0
	}
	cut {
		for (other in written)
			if (index($0, other "(") && !index(called, "(void)" other))
				called = called (called ? ", " : "") "(void)" other
		next
	}
	{ print }
	END { exit todo == 0 }' "$1" || die "nothing in $1 is marked to be written"
}

one() { # LAB [DIR]
	local source text dir=${2:-my$1}
	source=$(echo "$1"_*/*.c)
	[ -f "$source" ] || die "there is no lab '$1'; 05, 06 and 07 have starters"
	[[ $dir != */* ]] || die "DIR is a new directory beside the samples, such as my$1"
	[ ! -e "$dir" ] || die "$dir is there already, and is left as it is"
	# In what release packs, the samples are starters already.
	if grep -q '(TODO 1)' "$source"; then text=$(cat "$source"); else text=$(starter "$source"); fi
	mkdir "$dir"
	printf '%s\n' "$text" >"$dir/$(basename "$source")"
	cp "$(dirname "$source")/Makefile" "$dir"
	echo "$dir/$(basename "$source") is yours to complete:"
	grep -n 'TODO [0-9]*:' "$dir/$(basename "$source")"
}

release() {
	local tree source patch
	tree=$(mktemp -d)
	# shellcheck disable=SC2064 # the name, now
	trap "rm -rf '$tree'" EXIT
	mkdir -p results "$tree/hello-verbs"
	git archive HEAD | tar -x -C "$tree/hello-verbs"
	for source in 05_*/*.c 06_*/*.c 07_*/*.c; do
		starter "$source" >"$tree/hello-verbs/$source"
		# A patch shows the lines around it.
		for patch in tests/breakit/*.patch; do
			! grep -q "^sample: ${source%/*}" "$patch" || rm "$tree/hello-verbs/$patch"
		done
	done
	tar -C "$tree" -czf results/hello-verbs.tar.gz hello-verbs
	echo "results/hello-verbs.tar.gz holds the suite with starters for 05 to 07"
}

case ${1:-} in
make) one "${2:-}" "${3:-}" ;;
release) release ;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
