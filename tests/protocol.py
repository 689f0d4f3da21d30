# SPDX-License-Identifier: BSD-2-Clause
"""The rendezvous' lines, as a stranger says them."""
import re


def hello(sample="03_read", more="", size=4096, iters=1, gid="::ffff:10.0.0.1", qpn=0x11):
    """A client's line; more: what its work has behind the fields that all samples have."""
    return (
        f"hello-verbs/2 sample={sample} lid=0x0000 qpn=0x{qpn:06x} psn=0x3a5f10 gid={gid} "
        "mtu=1024 addr=0x0 rkey=0x0 len=0 max_sge=1 rd_atomic=0 "
        f"work=size={size},iters={iters},seed=1,timeout=3{more}\n"
    ).encode()


GOOD_LINE = hello()
SERVER_LINE = GOOD_LINE.replace(b"rkey=0x0 len=0", b"rkey=0x1 len=4096").replace(
    b"rd_atomic=0", b"rd_atomic=1"
)
# What every line has to be.
CONTRACT = re.compile(
    rb"hello-verbs/2 sample=\w+ lid=0x[0-9a-f]{4} qpn=0x[0-9a-f]{6} psn=0x[0-9a-f]{6} gid=[0-9a-f:.]+ mtu=\d+"
    rb" addr=0x[0-9a-f]+ rkey=0x[0-9a-f]+ len=\d+ max_sge=\d+ rd_atomic=\d+"
    rb" work=size=\d+,iters=\d+,seed=\d+,timeout=\d+[ -~]*\n"
)
