# SPDX-License-Identifier: BSD-2-Clause
"""Where the kernel is watched, and what is read there: kprobe events (Documentation/trace/kprobetrace.rst)."""

# The same functions and arguments from Linux 6.1 to 7.2; $argN is the N-th argument on every processor.
PROBES = """p:pd rxe_alloc_pd
p:create_cq rxe_create_cq cq=$arg1:x64 cqe=+0($arg2):u32 channel=+32($arg1):x64
p:srq rxe_create_srq
p:ah rxe_create_ah
p:mw rxe_alloc_mw type=+28($arg1):u32
p:register rxe_reg_user_mr addr=$arg2:x64 len=$arg3:u64 iova=$arg4:x64 access=$arg5:x32
r:registered rxe_reg_user_mr mr=$retval:x64 lkey=+16($retval):x32
p:create_qp rxe_create_qp qp=$arg1:x64 asked=+72($arg2):u32 scq=+16($arg2):x64 rcq=+24($arg2):x64 srq=+32($arg2):x64 \
send=+48($arg2):u32 receive=+52($arg2):u32 inline=+64($arg2):u32 type=+76($arg2):u32
r:ring rxe_queue_init buf=+8($retval):x64
p:modify_qp ib_uverbs:modify_qp mask=+68($arg2):x32 access=+88($arg2):x32 mtu=+98($arg2):u8 asks=+101($arg2):u8 \
answers=+102($arg2):u8 timeout=+105($arg2):u8 retry_cnt=+106($arg2):u8 rnr_retry=+107($arg2):u8 \
rnr_timer=+103($arg2):u8 state=+96($arg2):u8 qkey=+72($arg2):u32 rq_psn=+76($arg2):x32 sq_psn=+80($arg2):x32 \
dest=+84($arg2):x32 sgid=+24($arg2):u8 is_global=+30($arg2):u8
p:packet rxe_xmit_packet qp=$arg1:x64 opcode=+0(+24($arg2)):x8 psn=+36($arg2):x32 size=+42($arg2):u16 \
b0=+0(+24($arg2)):x64 b1=+8(+24($arg2)):x64 b2=+16(+24($arg2)):x64 b3=+24(+24($arg2)):x64 b4=+32(+24($arg2)):x64
p:copy rxe_mr_copy mr=$arg1:x64 iova=$arg2:x64 len=$arg4:u32 dir=$arg5:u32
p:completion rxe_cq_post of=$arg1:x64 id=+0($arg2):x64 status=+8($arg2):u32 opcode=+12($arg2):u32 bytes=+20($arg2):u32 \
imm=+24($arg2):u32 qpn=+28($arg2):x32
p:notify rxe_req_notify_cq flags=$arg2:u32
p:request rdma_rxe:copy_data opcode=-172($arg3):u32 flags=-168($arg3):x32 access=$arg2:x32
p:srq_limit rxe_modify_srq limit=+8($arg2):u32
p:bind rxe_bind_mw rkey=+48($arg2):x32 addr=+24($arg2):x64 length=+32($arg2):u64 access=+52($arg2):x32
p:cq_error ib_uverbs_cq_event_handler
p:free_mr rxe_dereg_mr mr=$arg1:x64
p:free_qp rxe_destroy_qp
p:free_cq rxe_destroy_cq
p:free_pd rxe_dealloc_pd
p:free_ah rxe_destroy_ah
p:free_mw rxe_dealloc_mw
p:free_srq rxe_destroy_srq
p:free_completion_channel uverbs_completion_event_file_destroy_uobj
p:exits do_exit
p:closing uverbs_destroy_ufile_hw
r:closed uverbs_destroy_ufile_hw
"""
