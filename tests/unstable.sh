#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# unstable.sh COMMAND… - runs it with the kernel of Debian unstable, the newest there is, in KERNEL.
# Exit status 77 where that can't be had.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{state/lists,cache/archives}/partial
# The mirror is this machine's own.
# shellcheck disable=SC2016 # for apt-get
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 2>/dev/null | head -n1)
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] ${mirror:-none} sid main" >"$work/sources"
cat >"$work/apt.conf" <<-END
	Dir::State "$work/state"; Dir::Cache "$work/cache"; Dir::State::status "/dev/null";
	Dir::Etc::sourcelist "$work/sources"; Dir::Etc::sourceparts "-";
END
export APT_CONFIG=$work/apt.conf
image=linux-image-$(dpkg --print-architecture)
if apt-get -qq -o APT::Sandbox::User=root update && KERNEL=$(apt-cache depends "$image" | grep -om1 'linux-image-[0-9].*'); then
	export KERNEL
	"$@"
else
	echo "no kernel of Debian unstable to be had"
	exit 77
fi
