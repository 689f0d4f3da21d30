# SPDX-License-Identifier: BSD-2-Clause
# SMC-R: the stream of a TCP program, by RDMA. BY=tcp: the machines have no name in common, so it goes by TCP.
. "$here/rds.sh"
program=$here/smc.py
modules+=' smc' # an image of its own: with Linux 6.1 SMC and rxe hang together, so it is not there by chance

prepare() { # on this machine: Debian 12's own kernel has no IPPROTO_SMC, but Debian 12 has a newer one, too
	local newer
	newer=linux-image-6.12-$(dpkg --print-architecture 2>/dev/null)
	if [ -z "${KERNEL:-}" ] && apt-cache show "$newer" >/dev/null 2>&1; then export KERNEL=$newer; fi
}
join() { has smc && "$program" name || exit; }
