#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# bundle.sh make autolab|gradescope|classroom50|prairielearn 05|06|07 - leaves in results/bundle-… what that
# platform takes to grade a lab by itself: this script, the suite, and what starts it there:
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
"make autolab 0"[567] | "make gradescope 0"[567] | "make classroom50 0"[567] | "make prairielearn 0"[567])
	out=results/bundle-$2 grade="bundle.sh grade $2 $3"
	rm -rf "$out" && mkdir -p "$out"
	git archive --format=tar.gz -o "$out/suite.tar.gz" HEAD . ':!teach/answers.md' && cp teach/bundle.sh "$out" && cd "$out"
	if [ "$2" = autolab ]; then # Tango makes autograde, Autolab's documents say the first target
		tar --remove-files -cf autograde.tar bundle.sh suite.tar.gz
		printf 'autograde:\n\t@mkdir .grade && tar -xf autograde.tar -C .grade && rm autograde.tar Makefile && %s\n' \
			"bash .grade/$grade . 2>&1 || true" >autograde-Makefile
	elif [ "$2" = gradescope ]; then
		printf '#!/bin/bash\nbash /autograder/source/bundle.sh setup\n' >setup.sh
		printf '#!/bin/bash\ncd /autograder/results && bash ../source/%s ../submission >new && mv new results.json\n' \
			"$grade" >run_autograder
		chmod +x setup.sh run_autograder && python3 -m zipfile -c autograder.zip ./* && rm bundle.sh suite.tar.gz setup.sh run_autograder
	elif [ "$2" = classroom50 ]; then
		printf '%s\n' 'import os, sys' 'here = os.path.dirname(os.path.abspath(__file__))' \
			"sys.exit(os.system(f\"bash '{here}'/$grade . >.new && mv .new result.json\") >> 8)" >autograder.py
		echo '{"runs-on": "ubuntu-latest", "container": {"image": "python:3.13-bookworm", "user": "root"}}' >runtime.json
	else
		mkdir tests && mv bundle.sh suite.tar.gz tests
		echo '<pl-file-upload file-patterns="handin-*.zip"></pl-file-upload><pl-external-grader-results></pl-external-grader-results>' >question.html
		printf '{"uuid": "6d1bd5a0-3c1e-4b52-9d1c-0000000000%s", "type": "v3", "title": "hello verbs, lab %s", "topic": "RDMA",
 "gradingMethod": "External", "externalGradingOptions": {"image": "%s", "timeout": 600, "enableNetworking": true,
 "entrypoint": "/grade/tests/run"}}\n' "$3" "$3" "${IMAGE:-debian:12}" >info.json
		printf '#!/bin/bash\nmkdir -p /grade/results && cd /grade/results && bash ../tests/%s ../student >new && mv new results.json\n' \
			"$grade" >tests/run
		chmod +x tests/run
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
