#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# bundle.sh make autolab|gradescope 05|06|07 - leaves in results/bundle-… what that platform takes to grade a lab by
# itself: this script, the suite, and what starts it there:
# bundle.sh setup - as root: installs what is missing, builds, stores a VM
# bundle.sh grade FORMAT LAB FOLDER - grades a student's files, prints the result; none where grading can't run
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

place() { # the suite, built: all in one directory, which the VM hides from students' programs
	[ -e "$here/suite" ] || { mkdir "$here/suite" && tar -xzf "$here/suite.tar.gz" -C "$here/suite" && mv "$here/suite.tar.gz" "$here/suite"; }
	cd "$here/suite"
	export TESTENV=vm TESTENV_CLOCK=virtual TESTENV_SEALED=yes TESTENV_MEMORY="${TESTENV_MEMORY:-512}"
	! mkdir -p /var/cache/hello-verbs 2>/dev/null || export TESTENV_CACHE=/var/cache/hello-verbs
	{ testenv/deps.sh build vm && make -s all; } >&2
}

case "$*" in
"make autolab 0"[567] | "make gradescope 0"[567])
	out=results/bundle-$2 grade="grade $2 $3"
	rm -rf "$out" && mkdir -p "$out"
	git archive --format=tar.gz -o "$out/suite.tar.gz" HEAD && cp teach/bundle.sh "$out" && cd "$out"
	if [ "$2" = autolab ]; then # Tango makes autograde, Autolab's documents say the first target
		tar --remove-files -cf autograde.tar bundle.sh suite.tar.gz
		printf 'autograde:\n\t@mkdir .grade && tar -xf autograde.tar -C .grade && rm autograde.tar Makefile && %s\n' \
			"bash .grade/bundle.sh $grade . 2>&1 || true" >autograde-Makefile
	else
		printf '#!/bin/bash\nbash /autograder/source/bundle.sh setup\n' >setup.sh
		printf '#!/bin/bash\ncd /autograder/results && bash ../source/bundle.sh %s ../submission >new && mv new results.json\n' \
			"$grade" >run_autograder
		chmod +x setup.sh run_autograder && python3 -m zipfile -c autograder.zip ./* && rm bundle.sh suite.tar.gz setup.sh run_autograder
	fi
	;;
setup)
	place
	testenv/testenv.sh run true
	chmod -R a+rwX "$TESTENV_CACHE"
	;;
grade*)
	folder=$(realpath "$4")
	place </dev/null
	teach/program.py "$3" "$folder" </dev/null >&2 || [ $? = 2 ] # 2: there is no program
	teach/grade.py --format "$2" "$folder"
	;;
*) sed -n '3,6p' "$0" >&2 && exit 2 ;;
esac
