# SPDX-License-Identifier: BSD-2-Clause
# What nvme, iser and srp share: the server lends a disk in its memory (brd), the last two by Linux's SCSI target.
disk=/dev/sda # at the client
config=/sys/kernel/config
core=$config/target/core/iblock_0
block=${BLOCK:-65536} # bytes of one read or write

ready() { mountpoint -q $config || mount -t configfs none $config; }
lend() { # GROUP - to those who log in there
	mkdir -p $core/disk
	echo udev_path=/dev/ram0 >$core/disk/control
	echo 1 >$core/disk/enable
	mkdir -p $1/lun/lun_0
	ln -s $core/disk $1/lun/lun_0/disk
}
take_back() { # GROUP [DIRECTORY…] - which stand in it
	echo 0 >$1/enable
	rm $1/lun/lun_0/disk
	rmdir "${@:2}" $1/lun/lun_0 $1 "${1%/*}" $core/disk $core
}
put() { dd if="$1" of=$disk bs="$block" oflag=direct conv=nocreat status=none; }
get() { dd if=$disk of="$1" bs="$block" count=$((bytes / block)) iflag=direct status=none; }
