#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Where the kernel is watched, and what is read there: kprobe events (Documentation/trace/kprobetrace.rst).
    probes.py KERNEL   prints them, for the kernel in a directory that testenv/kernel.sh made
Fields of the kernel's structures stand here by name. Where they lie the kernel itself tells (BTF,
Documentation/bpf/btf.rst), so another kernel may have other layouts."""
import os
import re
import struct
import subprocess
import sys
from functools import cache

# {struct.field}(pointer) is memory; sums and differences of such offsets, too. Functions and arguments
# are the same from Linux 6.1 to 7.2; $argN is the N-th argument on every processor.
# - include/rdma/ib_verbs.h: ib_*; drivers/infiniband/sw/rxe/: rxe_pkt_info, rxe_queue
# - include/uapi/rdma/ib_user_verbs.h: ib_uverbs_*, what libibverbs writes and reads
# - include/uapi/rdma/rdma_user_rxe.h: rxe_send_*; in a bind its wr is addr, length, mr_lkey, mw_rkey,
#   rkey, access. rxe's copy_data gets the address of dma within a request.
# - b0 to b4: a packet's first 40 bytes, its transport headers (IBTA specification)
PROBES = """p:pd rxe_alloc_pd
p:create_cq rxe_create_cq cq=$arg1:x64 cqe={ib_cq_init_attr.cqe}($arg2):u32 channel={ib_cq.cq_context}($arg1):x64
p:srq rxe_create_srq
p:ah rxe_create_ah
p:mw rxe_alloc_mw type={ib_mw.type}($arg1):u32
p:register rxe_reg_user_mr addr=$arg2:x64 len=$arg3:u64 iova=$arg4:x64 access=$arg5:x32
r:registered rxe_reg_user_mr mr=$retval:x64 lkey={ib_mr.lkey}($retval):x32
p:create_qp rxe_create_qp qp=$arg1:x64 asked={ib_qp_init_attr.sq_sig_type}($arg2):u32 \
scq={ib_qp_init_attr.send_cq}($arg2):x64 rcq={ib_qp_init_attr.recv_cq}($arg2):x64 \
srq={ib_qp_init_attr.srq}($arg2):x64 send={ib_qp_init_attr.cap+ib_qp_cap.max_send_wr}($arg2):u32 \
receive={ib_qp_init_attr.cap+ib_qp_cap.max_recv_wr}($arg2):u32 \
inline={ib_qp_init_attr.cap+ib_qp_cap.max_inline_data}($arg2):u32 type={ib_qp_init_attr.qp_type}($arg2):u32
r:ring rxe_queue_init buf={rxe_queue.buf}($retval):x64
p:modify_qp ib_uverbs:modify_qp mask={ib_uverbs_modify_qp.attr_mask}($arg2):x32 \
access={ib_uverbs_modify_qp.qp_access_flags}($arg2):x32 mtu={ib_uverbs_modify_qp.path_mtu}($arg2):u8 \
asks={ib_uverbs_modify_qp.max_rd_atomic}($arg2):u8 answers={ib_uverbs_modify_qp.max_dest_rd_atomic}($arg2):u8 \
timeout={ib_uverbs_modify_qp.timeout}($arg2):u8 retry_cnt={ib_uverbs_modify_qp.retry_cnt}($arg2):u8 \
rnr_retry={ib_uverbs_modify_qp.rnr_retry}($arg2):u8 rnr_timer={ib_uverbs_modify_qp.min_rnr_timer}($arg2):u8 \
state={ib_uverbs_modify_qp.qp_state}($arg2):u8 qkey={ib_uverbs_modify_qp.qkey}($arg2):u32 \
rq_psn={ib_uverbs_modify_qp.rq_psn}($arg2):x32 sq_psn={ib_uverbs_modify_qp.sq_psn}($arg2):x32 \
dest={ib_uverbs_modify_qp.dest_qp_num}($arg2):x32 \
sgid={ib_uverbs_modify_qp.dest+ib_uverbs_qp_dest.sgid_index}($arg2):u8 \
is_global={ib_uverbs_modify_qp.dest+ib_uverbs_qp_dest.is_global}($arg2):u8
p:packet rxe_xmit_packet qp=$arg1:x64 opcode={rxe_pkt_info.opcode}($arg2):x8 psn={rxe_pkt_info.psn}($arg2):x32 \
size={rxe_pkt_info.paylen}($arg2):u16 b0=+0({rxe_pkt_info.hdr}($arg2)):x64 b1=+8({rxe_pkt_info.hdr}($arg2)):x64 \
b2=+16({rxe_pkt_info.hdr}($arg2)):x64 b3=+24({rxe_pkt_info.hdr}($arg2)):x64 b4=+32({rxe_pkt_info.hdr}($arg2)):x64
p:copy rxe_mr_copy mr=$arg1:x64 iova=$arg2:x64 len=$arg4:u32 dir=$arg5:u32
p:completion rxe_cq_post of=$arg1:x64 id={ib_uverbs_wc.wr_id}($arg2):x64 status={ib_uverbs_wc.status}($arg2):u32 \
opcode={ib_uverbs_wc.opcode}($arg2):u32 bytes={ib_uverbs_wc.byte_len}($arg2):u32 imm={ib_uverbs_wc.ex}($arg2):u32 \
qpn={ib_uverbs_wc.qp_num}($arg2):x32
p:notify rxe_req_notify_cq flags=$arg2:u32
p:request rdma_rxe:copy_data opcode={rxe_send_wqe.wr+rxe_send_wr.opcode-rxe_send_wqe.dma}($arg3):u32 \
flags={rxe_send_wqe.wr+rxe_send_wr.send_flags-rxe_send_wqe.dma}($arg3):x32 access=$arg2:x32
p:srq_limit rxe_modify_srq limit={ib_srq_attr.srq_limit}($arg2):u32
p:bind rxe_bind_mw addr={rxe_send_wqe.wr+rxe_send_wr.wr}($arg2):x64 length={rxe_send_wqe.wr+rxe_send_wr.wr+8}($arg2):u64 \
rkey={rxe_send_wqe.wr+rxe_send_wr.wr+24}($arg2):x32 access={rxe_send_wqe.wr+rxe_send_wr.wr+28}($arg2):x32
p:cq_error ib_uverbs_cq_event_handler
p:free_mr rxe_dereg_mr mr=$arg1:x64
p:free_qp rxe_destroy_qp qp=$arg1:x64
p:free_cq rxe_destroy_cq cq=$arg1:x64
p:free_pd rxe_dealloc_pd
p:free_ah rxe_destroy_ah
p:free_mw rxe_dealloc_mw
p:free_srq rxe_destroy_srq
p:free_completion_channel uverbs_completion_event_file_destroy_uobj
p:exits do_exit
p:closing uverbs_destroy_ufile_hw
r:closed uverbs_destroy_ufile_hw
"""
HEADER = struct.Struct("<HBBIIIII")  # struct btf_header
RECORD = struct.Struct("<III")  # struct btf_type, btf_member
STRUCT = rb"(?s)%b..\0[\x04\x84]"  # a btf_type's name, and its info: how many members, and the kind


class NoField(Exception):
    """This kernel's structure has no such field (its name), or the kernel has no such structure."""


def sections(data):
    """Of each BTF in there: its types, and its names with a zero byte before the first one."""
    magic = rb"(?s)\x9f\xeb\x01.....\0\0\0\0"  # with version, flags, the header's size, types at 0
    for found in re.finditer(magic, data):
        *_, size, _, types, names, length = HEADER.unpack_from(data, found.start())
        at = found.start() + size
        if types == names and size < 256:  # they follow each other
            yield data[at : at + types], b"\0" + data[at + types : at + types + length]


class Kernel:
    """The structures of a kernel, in its own words. directory: one of testenv/kernel.sh's, whose two
    files hold all that is needed, not compressed."""

    def __init__(self, directory):
        """parts: types and names of the kernel proper, and then of each module, whose names go on behind these."""
        self.parts = []
        for name in ("vmlinux", "initramfs"):
            with open(f"{directory}/{name}", "rb") as file:
                parts = list(sections(file.read()))
            if not parts:
                sys.exit(
                    "probes.py: this kernel does not say where the fields of its structures lie (it is "
                    "built without BTF). KERNEL=PACKAGE names another one: see testenv/kernel.sh"
                )
            self.parts += parts

    @cache
    def members(self, name):
        """{field: byte} of a structure; of one that is not there, none."""
        word, base = b"\0%b\0" % name.encode(), self.parts[0][1]
        for types, names in self.parts:
            at = base.find(word)
            if at < 0 and word in names:
                at = len(base) - 1 + names.find(word)
            number = re.escape(struct.pack("<i", at))
            for found in re.finditer(STRUCT % number, types) if at >= 0 else ():
                if found.start() % 4 == 0:
                    return dict(self.fields(types, found.start(), base, names))
        return {}

    @staticmethod
    def fields(types, at, base, names):
        """The members of the structure that is described there, with the byte where each begins."""
        _, info, _ = RECORD.unpack_from(types, at)
        for member in range(at + 12, at + 12 + 12 * (info & 0xFFFF), 12):
            name, _, bits = RECORD.unpack_from(types, member)
            text, name = (base, name) if name < len(base) - 1 else (names, name - len(base) + 1)
            yield text[name + 1 : text.index(0, name + 1)].decode(), (bits & 0xFFFFFF) // 8

    def place(self, term):
        """What stands for {…} in an event: bytes, with their sign."""
        total = 0
        for sign, name, field, number in re.findall(r"([+-]?)(?:(\w+)\.(\w+)|(\d+))", term[1]):
            if name and field not in self.members(name):
                raise NoField(f"{name}.{field}")
            total += int(sign + "1") * (self.members(name)[field] if name else int(number))
        return f"{total:+d}"


def resolved(directory):
    """The events, with numbers for names; each word that is left out because this kernel has no such
    field stands on a line of its own: "# EVENT WORD struct.field". directory: as for Kernel."""
    kernel, lines, without = Kernel(directory), [], []
    for line in PROBES.splitlines():
        event, *words = line.split()
        lines.append(event)
        for word in words:
            try:
                lines[-1] += " " + re.sub(r"\{(.*?)\}", kernel.place, word)
            except NoField as why:
                without.append(f"# {event[2:]} {word.partition('=')[0]} {why}")
    return "".join(f"{line}\n" for line in lines + without)


def kernel_of_the_vm(root):
    """Its directory."""
    made = subprocess.run(
        [f"{root}/testenv/kernel.sh"], stdout=subprocess.PIPE, text=True, check=False
    )
    directory = made.stdout.strip()
    if made.returncode or not directory:
        sys.exit(made.returncode or 1)
    return directory


def for_the_vm(root, scratch):
    """Those for the kernel that the VM has, in a file: its path."""
    directory = kernel_of_the_vm(root)
    path = f"{scratch}/probes.{os.path.basename(directory)}"
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(__file__):
        text = resolved(directory)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    return path


if __name__ == "__main__":
    print(resolved(*sys.argv[1:]), end="")
