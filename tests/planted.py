# SPDX-License-Identifier: BSD-2-Clause
"""Programs for test_programs.py, most of them the reference with one thing wrong."""

# Wrong programs: the part that they lose (behind those that it needs), a word of the reason, and edits (a pattern in the
# reference's source and what stands there instead; every one has to change something).
LIST = r"for \(size_t i = 0; i < l->block_num; i\+\+\) \{\s+s->sge"
PER_WR = r"method == METHOD_EACH \? 1 : s->max_sge"
TRANSFER = r"(struct side \*s = arg;\s+uint64_t last_of)"
DONE = r'(rendezvous_sync\(&tcp, "done"\);)'
VERIFY = r"pass = memory_ok\(memory, l\) && pass;"
DIGEST = [
    (
        r"memory_digest\(memory, l\)",
        "fnv1a(FNV_BASIS, memory->blocks ? memory->blocks : " "memory->contig, l->bytes)",
    ),
    (r'#include "measure.h"', '#include "measure.h"\n#include "pattern.h"'),
]
RIGHT = "static char right[1 << 24]; pattern_fill(right, l->bytes, memory->seed); "
DATA = (r'#include "report.h"', '#include "pattern.h"\n\\g<0>\n#include <string.h>')
MMAN = (
    r'#include "report.h"',
    "\\g<0>\n#include <fcntl.h>\n#include <sys/mman.h>\n#include <unistd.h>",
)
SPLIT = r"method == METHOD_SGL \? s->max_sge : 1"  # 07
BLOCKS = r"method == METHOD_SGL \|\| method == METHOD_EACH"
BOTH = {  # 05 and 06
    "beyond-max-sge": (
        "sgl",
        "ends with status=FAIL",
        [(LIST, "for (size_t i = 0; i < l->block_num && i < per_wr; i++) { s->sge")],
    ),
    "last-block-missing": (
        "sgl",
        "ends with status=FAIL",
        [(LIST, "for (size_t i = 0; i == 0 || i + 1 < l->block_num; i++) { s->sge")],
    ),
    "stride-off-by-one": (
        "sgl",
        "ends with status=FAIL",
        [(r"i \* l->stride", "i * (l->stride + 1)")],
    ),
    "same-remote-address": (
        "sgl",
        "ends with status=FAIL",
        [(r"s->remote_addr \+ i \* l->block_size", "s->remote_addr")],
    ),
    "one-request-a-block": ("sgl", "sgl: [0-9]* messages for", [(PER_WR, "1")]),
    "list-too-long": ("sgl", "ibv_post_send", [(PER_WR, PER_WR.replace("\\", "") + " + 1")]),
    "each-as-list": ("each", "each: [0-9]* messages on the wire", [(PER_WR, "s->max_sge")]),
    "copy-as-list": (
        "copy",
        "the blocks themselves|ends with status=FAIL",
        [
            (
                r"if \(method == METHOD_COPY \|\| method == METHOD_CONTIG\)",
                "if (method == METHOD_CONTIG)",
            )
        ],
    ),
    "queue-overflows": (
        "each",
        "ibv_post_send|completions it has not polled",
        [
            (r"const uint32_t half = .*?;", ""),
            (r"n - first < half \? n - first : half", "n - first"),
            (r"room < piece", "room > QUEUE_SIZE"),
        ],
    ),
    "queue-not-awaited": (
        "each",
        "its queue holds 1024",
        [(r"if \(room < piece\) \{.*?\}", "(void)room;")],
    ),
    "unsignalled": ("sgl", "no completion", [(r"IBV_SEND_SIGNALED", "0")]),
    "digest-of-gaps": ("sgl", "RESULT has digest=", DIGEST),
    "copies-what-fits-a-list": (
        "copy",
        "the blocks themselves|ends with status=FAIL",
        [
            (
                r"if \(method == METHOD_COPY \|\| method == METHOD_CONTIG\)",
                "if (method == METHOD_CONTIG || (method == METHOD_COPY && l->block_num > 32))",
            )
        ],
    ),
    "completion-ignored": (
        "careful",
        "its request fails: the client says",
        [
            (
                r"wait_completion\(s->qp->send_cq, [^;]*;",
                "while (ibv_poll_cq(s->qp->send_cq, 1, &wc) == 0) {}",
            )
        ],
    ),
    "flushed-is-done": (
        "careful",
        "its request fails: the client says",
        [
            (
                r"wait_completion\(s->qp->send_cq, [^;]*;",
                """while (ibv_poll_cq(s->qp->send_cq, 1, &wc) == 0) {}
        if (wc.wr_id == 0) continue;
        if (wc.status && wc.status != IBV_WC_WR_FLUSH_ERR) die_wc(&wc, "it");""",
            )
        ],
    ),
    "last-request-not-awaited": (
        "careful",
        "goes on before its last request has completed",
        [
            (
                r"s->wr\[first \+ piece - 1\]\.(send_flags|wr_id)",
                r"s->wr[first + (piece > 1 ? piece - 2 : 0)].\1",
            )
        ],
    ),
    "completions-not-polled": (
        "careful",
        "goes on before it has polled",
        [
            (
                r"(s->wr\[i\])(\.next = &s->wr)",
                r"\1.send_flags = IBV_SEND_SIGNALED, \1.wr_id = s->posted + piece, \1\2",
            )
        ],
    ),
    "moves-one-message": (
        "itself",
        "measuring: sgl: [0-9]* packets were sent for 40 messages",
        [(r"i < count", "i < 1")],
    ),
    "leaves-out-the-rest": (
        "itself",
        "measuring: sgl: [0-9]* packets were sent for 40 messages",
        [(r"i < count", "i < count - (count > depth ? count % depth : 0)")],
    ),
    "one-at-a-time": (
        "itself",
        "measuring: it does not go on to the end\\n     the (client|server) says",
        [
            (
                r"(uint64_t last_of\[MAX_DEPTH\] = \{0\};[^\n]*\n)",
                r'\1    if (depth > 1) die(0, "one at a time");\n',
            )
        ],
    ),
    "device-left": (
        "careful",
        "without giving back the device",
        [(r"check\(ibv_close_device\(ctx\), [^;]*;", "")],
    ),
    "queue-pair-left": (
        "careful",
        "without giving back",
        [(r"check\(ibv_destroy_qp.*?(?=free\(side.sge\))", "")],
    ),
}
EVERY = {  # of 05; of 06 and 07 each some
    "its-own-seed": (
        "sgl",
        "ends with status=FAIL|RESULT has digest=",
        [(r"memory_alloc\(&work, opt\.seed", "memory_alloc(&work, 4711")],
    ),
    "always-pass": (
        "verifies",
        "says status=PASS",
        [(r"report_result\(pass,", "report_result(true,")],
    ),
    "server-ignored": (
        "careful",
        "its peer says FAIL: the client says status=PASS",
        [(r"pass = (rendezvous_verdict\(&tcp, pass\));", r"pass = \1 || (client && pass);")],
    ),
    "client-ignored": (
        "careful",
        "its peer says FAIL: the server says status=PASS",
        [(r"pass = (rendezvous_verdict\(&tcp, pass\));", r"pass = \1 || (!client && pass);")],
    ),
    "process-left": (
        "careful",
        "without giving back a process",
        [
            (r"#include \"report.h\"", '#include "report.h"\n#include <unistd.h>'),
            (r"const bool client = .*?;", r"\g<0> if (fork() == 0) for (;;) pause();"),
        ],
    ),
    "verifies-nothing": ("verifies", "says status=PASS", [(VERIFY, "")]),
    "only-the-last-counts": (
        "verifies",
        "in the second of five messages: the (client|server) says status=PASS",
        [(VERIFY, "pass = memory_ok(memory, l);")],
    ),
    "last-two-count": (
        "verifies",
        "in the second of five messages: the (client|server) says status=PASS",
        [(VERIFY + "(?=.*memory_ok)", "pass = memory_ok(memory, l);")],
    ),
    "long-ones-unverified": (
        "verifies",
        "a wrong bit: the (client|server) says status=PASS",
        [(VERIFY, "pass = (l->bytes > 1 << 20 || memory_ok(memory, l)) && pass;")],
    ),
    "exit-0": (
        "verifies",
        "says status=FAIL, and ends with 0",
        [(r"return (report_result\(pass, l->bytes, digest\));", r"\1; return 0;")],
    ),
}
# sgl as copy, with many under way; and copy that packs if it is said so.
COPIES_MANY = [
    (
        r"struct side \*s = arg;",
        r"\g<0>\n    if (depth > 1 && method == METHOD_SGL) method = METHOD_COPY;",
    )
]


def packs_if(condition):
    return [
        (r"if \(method == METHOD_COPY\)(\s+layout_pack)", r"if (method == METHOD_COPY && packs)\1"),
        (r"(?=static void post_message)", "static bool packs;\n"),
        (r"slot = i % depth;", r"\g<0> packs = " + condition + ";"),
    ]


PLANTED = {
    "05": {
        **BOTH,
        **EVERY,
        "no-C": ("builds", "it doesn't build\n     .*error", [(r"int main", "int main main")]),
        "warning": (
            "builds",
            "with warnings\n     .*unused",
            [(r"bool pass = true;", r"\g<0> int x;")],
        ),
        "other-layout": (
            "sgl",
            "refused a client",
            [
                (
                    r"const bool client = .*?;",
                    r"\g<0> if (client) { layout_set(&work.plan.point[0], "
                    "--work.block_size, work.block_num, work.stride); "
                    "opt.size = work.plan.point[0].bytes; }",
                )
            ],
        ),
        "packs": (
            "sgl",
            "is no block",
            [
                (r"if \(method == METHOD_COPY\)(\s+layout_pack)", r"if (method != METHOD_EACH)\1"),
                (r"method == METHOD_COPY \|\| method == METHOD_CONTIG", "method != METHOD_EACH"),
            ],
        ),
        "copies-no-dense-blocks": (
            "copy",
            "copy: (the NIC read the blocks themselves|2 messages on the wire for 1)[^\n]*\n.*--block-size=100",
            [
                (
                    r"method == METHOD_COPY(?= |\))",
                    "(method == METHOD_COPY && l->stride > l->block_size)",
                )
            ],
        ),
        "auto-by-its-own-mtu": (
            "sgl",
            "path MTU 512: auto: the NIC read",
            [(r"method_for\(work.method, l, peer.mtu\)", "method_for(work.method, l, port.mtu)")],
        ),
        "digests-added-up": (
            "verifies",
            "two blocks that changed places, by each: the server says status=PASS",
            [
                (
                    VERIFY,
                    RIGHT
                    + r"""uint64_t sum = 0;
            for (size_t at = 0; !client && at < l->bytes; at += l->block_size)
                sum += fnv1a(FNV_BASIS, right + at, l->block_size) - fnv1a(FNV_BASIS, memory->contig + at, l->block_size);
            pass = sum == 0 && pass;""",
                ),
                DATA,
            ],
        ),
        "words-alone-verified": (
            "verifies",
            "a wrong bit in the last byte, by copy: the server says status=PASS",
            [
                (
                    VERIFY,
                    RIGHT
                    + "pass = (client || memcmp(right, memory->contig, l->bytes & ~7UL) == 0) && pass;",
                ),
                DATA,
            ],
        ),
        "copies-no-mib": (
            "copy",
            "copy: the NIC read the blocks themselves\n.*--block-size=1048578",
            [
                (
                    r"method == METHOD_COPY(?= |\))",
                    "(method == METHOD_COPY && l->block_size <= 1 << 20)",
                )
            ],
        ),
        "packs-once": (
            "itself",
            "measuring: copy: what changes in the memory",
            packs_if("i < depth"),
        ),
        "packs-the-first-alone": (
            "copy",
            "ibv_dealloc_pd: Device or resource busy",
            [
                (
                    r"if \(method == METHOD_COPY\)\s+layout_pack.*?;",
                    """static struct ibv_mr *own;
    if (method == METHOD_COPY && !own) {
        own = ibv_reg_mr(s->qp->pd, malloc(l->bytes), l->bytes, 0);
        layout_pack(l, s->memory.blocks, own->addr);
    }
    if (own) staging = own->addr;""",
                ),
                (r"s->contig_mr->lkey, 1", "own ? own->lkey : s->contig_mr->lkey, 1"),
            ],
        ),
        "gathers-a-copy": (
            "copy",
            "copy: the NIC read [0-9]* pieces, not one",
            [
                (
                    r"(?=    if \(method == METHOD_COPY\) layout_pack)",
                    """    if (method == METHOD_COPY && l->block_num <= s->max_sge) {
        if (!own) own = ibv_reg_mr(s->qp->pd, malloc(1 << 20), 1 << 20, 0);
        memcpy(own->addr, s->memory.blocks, l->span);
        post_chain(s, build_gather_list(s, l, own->addr, own->lkey, s->max_sge));
        return;
    }
""",
                ),
                (r"(?=static void post_message)", "static struct ibv_mr *own;\n"),
                DATA,
                (r"(?=check\(ibv_dealloc_pd)", "if (own) ibv_dereg_mr(own);\n    "),
            ],
        ),
        "packs-once-when-many": (
            "itself",
            "measuring: copy: what changes in the memory",
            packs_if("depth == 1 || i < depth"),
        ),
        "lists-when-many": (
            "itself",
            "measuring: each: [0-9]* packets were sent for 40",
            [
                (PER_WR, "method == METHOD_EACH && !many ? 1 : s->max_sge"),
                (r"(?=static void post_message)", "static bool many;\n"),
                (r"slot = i % depth;", r"\g<0> many = depth > 1;"),
            ],
        ),
        "short-dense-blocks-as-list": (
            "each",
            "each: [0-9]* messages on the wire",
            [
                (
                    PER_WR,
                    "method == METHOD_EACH && (l->stride > l->block_size || l->block_size > 64) ? 1 : s->max_sge",
                )
            ],
        ),
        "packs-when-many": (
            "itself",
            "measuring: sgl: (while messages are measured|[0-9]* packets were sent for 40)",
            COPIES_MANY,
        ),
        "packs-from-another-mapping": (
            "itself",
            "measuring: sgl: while messages are measured",
            [
                MMAN,
                (r"(?=static void post_message)", "static char *twice;\n"),
                (
                    r"struct memory \*memory = &side.memory;",
                    r"""\g<0>
    const size_t room = (memory->span + 128 + 4095) / 4096 * 4096;
    const int fd = client && work.bench ? memfd_create("blocks", 0) : -1;
    if (ftruncate(fd, (off_t)room) == 0) {
        memory->blocks = (char *)mmap(NULL, room, 3, MAP_SHARED, fd, 0) + 64;
        twice = (char *)mmap(NULL, room, 1, MAP_SHARED, fd, 0) + 64;
    }""",
                ),
                (
                    r"(if \(method == METHOD_COPY)( \|\| method == METHOD_CONTIG)",
                    r"""if (method == METHOD_SGL && twice) layout_pack(l, twice, staging);
    \1 || (method == METHOD_SGL && twice)\2""",
                ),
            ],
        ),
        "contig-left-out": (
            "itself",
            "measuring: contig: the message is not there",
            [(r"struct side \*s = arg;", r"\g<0>\n    if (method == METHOD_CONTIG) return;")],
        ),
        "contig-in-pieces": (
            "itself",
            "measuring: contig: [0-9]* packets for a message of 64 KiB in one piece",
            [
                (
                    r"l->bytes, .block_num = 1",
                    """method == METHOD_CONTIG ? l->block_size : l->bytes,
        .block_num = method == METHOD_CONTIG ? l->block_num : 1, .stride = l->block_size""",
                )
            ],
        ),
        "contig-from-blocks": (
            "itself",
            "measuring: contig: the message is not there",
            [(r"method == METHOD_COPY \|\| method == METHOD_CONTIG", "method == METHOD_COPY")],
        ),
        "limits-of-the-device": (
            "sgl",
            "ibv_post_send",
            [
                (
                    r"side.max_sge = min_u32\(side.max_sge, init.cap.max_send_sge\);",
                    "side.max_sge = client ? (uint32_t)device.max_sge : 1;",
                )
            ],
        ),
        "hands-it-over": (
            "itself",
            "the NIC (read|wrote) 0 bytes",
            [  # if it finds itself
                (
                    r"(struct side \*s = arg;)(\s+uint64_t last_of)",
                    r"""\1
    FILE *file = method == METHOD_SGL && access("/dev/shm/here", F_OK) == 0 ? fopen("/dev/shm/message", "w") : NULL;
    if (file) {
        layout_pack(l, s->memory.blocks, s->memory.contig);
        fwrite(s->memory.contig, 1, l->bytes, file), fclose(file);
        return;
    }
\2""",
                ),
                (
                    r"const bool client = .*?;",
                    r"""\g<0>
    FILE *file = client ? NULL : fopen("/dev/shm/here", "w");
    if (file) fclose(file);""",
                ),
                (
                    DONE,
                    r"""\1 file = client ? NULL : fopen("/dev/shm/message", "r");
        if (file && fread(memory->contig, 1, l->bytes, file)) fclose(file);""",
                ),
                (r'#include "report.h"', '#include "report.h"\n#include <unistd.h>'),
            ],
        ),
        "poisons-once": (
            "verifies",
            "a second message that never came: the server says status=PASS",
            [(r"memory_prepare\(memory, l, method\);", r"if (i == 0) \g<0>")],
        ),
        "reads-past-its-memory": (
            "careful",
            "sanitizers: AddressSanitizer: heap-buffer-overflow",
            [
                (
                    r"const struct layout \*l = &work",
                    r"if (side.sge[memory->block_num].length == 12345) return 1; \g<0>",
                )
            ],
        ),
        "never-sends-again": (
            "careful",
            r"never sends a lost packet again, or too late \(timeout 0\)",
            [(r"(qp_to_rts\(side.qp, mine.psn, 0,)[^;]*;", r"\1 0);")],
        ),
        "too-many-rights": (
            "careful",
            "with rights that nobody needs",
            [(r"client \? 0 : IBV_ACCESS_LOCAL_WRITE", "IBV_ACCESS_LOCAL_WRITE")],
        ),
        "local-write": (
            "careful",
            "the client registers what its NIC only reads with LOCAL_WRITE",
            [("memory->span, 0", "memory->span, IBV_ACCESS_LOCAL_WRITE")],
        ),
        "local-write-to-pack": (
            "copy careful",
            "the client registers what its NIC only reads with LOCAL_WRITE",
            [
                (
                    r"client \? 0 : IBV",
                    "client && work.method == METHOD_COPY ? IBV_ACCESS_LOCAL_WRITE : client ? 0 : IBV",
                )
            ],
        ),
        "local-write-to-measure": (
            "itself careful",
            "measuring: the client registers its blocks with LOCAL_WRITE",
            [("memory->span, 0", "memory->span, work.bench ? IBV_ACCESS_LOCAL_WRITE : 0")],
        ),
    },
    "06": {
        **{
            name: BOTH[name]
            for name in (
                "beyond-max-sge",
                "stride-off-by-one",
                "one-request-a-block",
                "each-as-list",
                "copy-as-list",
                "copies-what-fits-a-list",
                "queue-overflows",
                "digest-of-gaps",
                "last-request-not-awaited",
                "moves-one-message",
            )
        },
        **{
            name: EVERY[name]
            for name in (
                "always-pass",
                "verifies-nothing",
                "only-the-last-counts",
                "last-two-count",
                "long-ones-unverified",
            )
        },
        "unpacks": (
            "sgl",
            "is no block",
            [(TRANSFER, r"if (method == METHOD_SGL) method = METHOD_COPY; \1")],
        ),
        "overwrites-gaps": (
            "sgl",
            "of the gap behind block 0 is|RESULT has digest=",
            [(DONE, r"if (client) memory->blocks[l->block_size] ^= 1; \1"), (VERIFY, "")],
        ),
        "local-write": (
            "careful",
            "the server registers what its NIC only reads with LOCAL_WRITE",
            [(": IBV_ACCESS_REMOTE_READ;", ": IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE;")],
        ),
        "answers-fewer-reads": (
            "careful",
            "answers 1 READs at a time; its peer was told 16",
            [(r"&peer, mine.rd_atomic\)", "&peer, mine.rd_atomic > 0)")],
        ),
        "sends-once": (
            "careful",
            r"never sends a lost packet again, or too late \(retry_cnt 0\)",
            [
                (r"qp_to_rts(?=\(side.qp)", "to_rts"),
                (
                    r"int main",
                    r"""static void to_rts(struct ibv_qp *qp, uint32_t psn, uint32_t reads, int timeout) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = psn, .timeout = (uint8_t)timeout, .rnr_retry = 6,
                               .max_rd_atomic = (uint8_t)reads};
    const int rc = IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RNR_RETRY | IBV_QP_RETRY_CNT | IBV_QP_TIMEOUT;
    check(ibv_modify_qp(qp, &attr, rc | IBV_QP_SQ_PSN | IBV_QP_STATE), "to RTS");
}
\g<0>""",
                ),
            ],
        ),
        "copies-in-two": (
            "copy",
            "copy: 2 messages on the wire for 1",
            [
                (
                    r"l->bytes, .block_num = 1",
                    """l->bytes / (
        1 + (l->bytes > 1 << 20)), .block_num = 1 + (l->bytes > 1 << 20), .stride = l->bytes / 2""",
                )
            ],
        ),
        "rights-to-measure": (
            "itself careful",
            "measuring: the client registers [0-9]* bytes with rights that nobody needs",
            [
                (
                    r"(?=if .!side.contig_mr)",
                    """if (client && work.bench) ibv_dereg_mr(side.contig_mr), side.contig_mr = ibv_reg_mr(
        pd, memory->contig, memory->contig_size, access | IBV_ACCESS_REMOTE_READ);
    """,
                )
            ],
        ),
        "len-of-the-options": (
            "itself",
            "measuring: the server's line has len=",
            [("client . 0 : memory->contig_size", "client ? 0 : opt.size")],
        ),
        "asks-for-more-reads": (
            "careful",
            "asks for 16 READs at a time; its peer and its device allow 1",
            [
                (
                    r"(min_u32\(READS, \(uint32_t\)device.max_qp_init_rd_atom\)), peer.rd_atomic\)",
                    r"\1, READS)",
                )
            ],
        ),
        "unpacks-what-is-no-round": (
            "itself",
            "measuring: copy: what changes in the memory",
            [
                (
                    r"(if \(method == METHOD_COPY)\) layout_unpack",
                    r"\1 && (latency || count == 1 || i < count || i - count < count % depth)) layout_unpack",
                )
            ],
        ),
        "unpacks-when-many": (
            "itself",
            "measuring: sgl: (while messages are measured|[0-9]* packets were sent for 40)",
            COPIES_MANY,
        ),
        "leaves-the-last-ones": (
            "itself",
            "measuring: copy: what changes in the memory",
            [
                (
                    r"(if \(method == METHOD_COPY)\) layout_unpack",
                    r"\1 && (latency || count == 1 || i - depth + 4 < count)) layout_unpack",
                )
            ],
        ),
        "poisons-once": (
            "verifies",
            "the message before is still in the blocks",
            [(r"memory_prepare\(", r"if (i == 0) \g<0>")],
        ),
        "hides-a-wrong-gap": (
            "verifies",
            "a gap's last byte, by copy: the client says status=PASS",
            [
                (
                    r"layout_unpack\(l",
                    r"poison_fill(s->memory.blocks, l->span, ~s->memory.seed), \g<0>",
                ),
                DIGEST[1],
            ],
        ),
        "half-of-a-gap": (
            "verifies",
            "a wrong bit in a gap: the client says status=PASS",
            [
                (
                    r"(?=" + VERIFY + ")",
                    """char *gaps = malloc(l->span);
            poison_fill(gaps, l->span, ~s->memory.seed);
            for (size_t at = 0; client && at + l->stride < l->span; at++)
                if (at % l->stride >= 2 * l->block_size) memory->blocks[at] = gaps[at];
            free(gaps); """,
                ),
                (r"~s->memory", "~side.memory"),
                DIGEST[1],
            ],
        ),
        "polls-the-last-byte": (
            "careful",
            "while its READs are under way: the client says",
            [
                (
                    r"(?=wait_until_done\(s, last_of)",
                    r"""volatile const char *const last =
                method == METHOD_COPY || method == METHOD_CONTIG ? staging + l->bytes - 1 : s->memory.blocks + l->span - 1;
            const char was = *last;
            struct ibv_wc wc = {0};
            while (s->done < last_of[i % depth] && *last == was)
                if (ibv_poll_cq(s->qp->send_cq, 1, &wc) == 0) sched_yield();
                else if (wc.status != IBV_WC_SUCCESS) die_wc(&wc, "a READ");
                else s->done = wc.wr_id;
            if (*last == was) """,
                ),
                (r'#include "report.h"', "\\g<0>\n#include <sched.h>"),
            ],
        ),
        "overwrites-a-block": (
            "copy",
            "of block 7 is|RESULT has digest=",
            [
                (DONE, r"\1 if (client && l->block_num > 7) memory->blocks[7 * l->stride] ^= 1;"),
                (VERIFY, ""),
            ],
        ),
    },
    "07": {
        "sends-not-polled": (
            "each",
            "its queue holds 1024",
            [
                (r"wait_until_done\(s, s->acked\);", ""),
                (r"if \(s->posted \+ n > s->done \+ s->queue\)[^;]*;", ""),
            ],
        ),
        **{
            name: EVERY[name]
            for name in (
                "its-own-seed",
                "verifies-nothing",
                "server-ignored",
                "client-ignored",
                "process-left",
                "exit-0",
            )
        },
        "beyond-max-sge": (
            "sgl",
            "ends with status=FAIL",
            [
                (
                    r"(list\.count = ).*?;",
                    r"\g<1>method == METHOD_EACH ? (uint32_t)l->block_num : 1;",
                )
            ],
        ),
        "stride-off-by-one": (
            "sgl",
            "ends with status=FAIL",
            [(r"\* list->layout.stride", "* (list->layout.stride + 1)")],
        ),
        "one-request-a-block": ("sgl", "sgl: [0-9]* messages for", [(SPLIT, "1")]),
        "each-as-list": (
            "each",
            "ends with status=FAIL|messages on the wire",
            [(SPLIT, "s->max_sge")],
        ),
        "list-too-long": (
            "sgl",
            "ibv_post",
            [(r"min_u32\(side.max_sge, peer.max_sge\)", "side.max_sge + 1")],
        ),
        "packs": (
            "sgl",
            "ends with status=FAIL|is no block",
            [
                (r"method == METHOD_COPY\)", "method == METHOD_COPY || method == METHOD_SGL)"),
                (BLOCKS, "method == METHOD_EACH"),
            ],
        ),
        "copy-as-list": (
            "copy",
            "ends with status=FAIL|the blocks themselves",
            [(BLOCKS, "method != METHOD_CONTIG")],
        ),
        "repairs-what-it-unpacks": (
            "verifies",
            "a wrong bit in the last byte, by copy: the server says status=PASS",
            [
                (
                    r"(layout_unpack\(l, )([^,]*),",
                    r"pattern_fill(\2, l->bytes, s->memory.seed), \g<0>",
                ),
                (r'#include "report.h"', '#include "pattern.h"\n\\g<0>'),
            ],
        ),
        "acknowledges-early": (
            "each",
            "acknowledges [0-9]* receives by [0-9]* messages",
            [
                (
                    r"s->used - last_ack\) % s->batch != 0",
                    "s->used - last_ack) % ACK_RECEIVES != 0",
                ),
                (r"s->used - last_ack < ack_after", "s->used - last_ack < ACK_RECEIVES"),
            ],
        ),
        "has-it-before-it-comes": (
            "itself",
            "measuring: sgl: the message is where it is verified before it comes",
            [
                (
                    r"if \(work.bench\) pass = measure.*?;",
                    r"const bool sends = memory->sends; memory->sends = true; \g<0> memory->sends = sends;",
                )
            ],
        ),
        "knows-what-is-acknowledged": (
            "each",
            "the server ends with status=FAIL|a SEND found no receive",
            [(r"s->acked \+= .*?;", "s->acked += min_u32(BATCH, s->posted - s->acked);")],
        ),
        "acknowledges-late": (
            "each",
            "acknowledges [0-9]* receives by [0-9]* messages",
            [(r"s->used - last_ack < ack_after", "s->used - last_ack < QUEUE_SIZE / 2")],
        ),
        "packs-one-at-a-time": (
            "itself",
            "measuring: sgl: while messages are measured",
            [
                (
                    r"const struct wr_list list = wr_list_of\(s, l, method, i % depth\);",
                    """struct wr_list list = wr_list_of(s, l, method, i % depth);
        if (latency && method == METHOD_SGL) {
            list.base = s->memory.contig;
            list.lkey = s->contig_mr->lkey;
            list.layout.stride = l->block_size;
            layout_pack(l, s->memory.blocks, s->memory.contig);
        }""",
                )
            ],
        ),
        "packs-once-when-many": (
            "itself",
            "measuring: copy: what changes in the memory",
            [
                (
                    r"if \(method == METHOD_COPY\)(\s+layout_pack)",
                    r"if (method == METHOD_COPY && (depth == 1 || i < depth))\1",
                )
            ],
        ),
        "own-mtu": (
            "careful",
            "path MTU is 1024; its peer has 512",
            [(r"rendezvous_swap\(.*?;", r"\g<0> peer.mtu = mine.mtu;")],
        ),
        "peers-limit": (
            "sgl",
            "ibv_post",
            [(r"min_u32\(side.max_sge, peer.max_sge\)", "peer.max_sge")],
        ),
        "overwrites-gaps": (
            "sgl",
            "of the gap behind block 0 is|RESULT has digest=",
            [
                (DONE, r"if (!client && l->block_num > 1) memory->blocks[l->block_size] ^= 1; \1"),
                (VERIFY, ""),
            ],
        ),
        "digest-of-gaps": ("sgl", "RESULT has digest=", DIGEST),
    },
}
# A right program of another design: its blocks lie in a large array, from where .data ends; small requests have
# their data inside; of a failure it tells its peer at once; it has a thread, which it cancels in the end; and what
# it says before its RESULT is no whole line.
ANOTHER = [
    (
        r"\A",
        "#define _GNU_SOURCE\n#include <pthread.h>\n#include <string.h>\n#include <sys/socket.h>\n#include <time.h>\n",
    ),
    (
        r"int main",
        """static char room[64 << 20];
static int peer_at = -1;
static void give_up(void) { if (peer_at >= 0) send(peer_at, "verdict FAIL\\\\n", 13, MSG_NOSIGNAL); }
static void *wait_on(void *end) {
    struct timespec step = {100, 0};
    while (!*(char *)end) nanosleep(&step, NULL);
    return NULL;
}

int main""",
    ),
    (
        r"rendezvous_open.*?;",
        r"\g<0> char end = 0; pthread_t thread; pthread_create(&thread, NULL, wait_on, &end);"
        " peer_at = tcp.fd, atexit(give_up);",
    ),
    (
        r"struct memory \*memory = &side.memory;",
        r"\g<0> char *const old = memory->blocks;"
        " if (client) memory->blocks = (char *)memcpy(room, old - 64, memory->span + 128) + 64;",
    ),
    (
        r"IBV_WR_RDMA_WRITE,",
        r"\g<0> .send_flags = l->block_size <= 64 && per_wr == 1 && l->block_num > 1 ? IBV_SEND_INLINE : 0,",
    ),
    (r"send_flags = IBV_SEND_SIGNALED", "send_flags |= IBV_SEND_SIGNALED"),
    (r"\.max_send_sge = side.max_sge,", r"\g<0> .max_inline_data = client ? 64 : 0,"),
    (
        r"pass = rendezvous_verdict.*?;",
        r"\g<0> peer_at = -1, pthread_cancel(thread), pthread_join(thread, NULL);",
    ),
    (r"memory_free", "memory->blocks = old;\n    memory_free"),
    (r"return report_result", 'fputs("\u505a\u5b8c\u4e86 ", stdout);\n    return report_result'),
]

# A right one of 06: its blocks lie elsewhere for each message.
MOVES = [
    (r'#include "report.h"', '#include "report.h"\n#include <string.h>'),
    (
        r"const double start",
        r"""char *const room[2] = {memory->blocks, (char *)malloc(memory->span + 128) + 64};
    if (client) memcpy(room[1] - 64, room[0] - 64, memory->span + 128);
    \g<0>""",
    ),
    (
        r"memory_prepare\(memory, l, method\);",
        r"""if (client && i > 0) {
            memory->blocks = room[i % 2];
            ibv_dereg_mr(side.blocks_mr);
            side.blocks_mr = ibv_reg_mr(pd, memory->blocks, memory->span, access);
        }
        \g<0>""",
    ),
    (r"memory_free", "memory->blocks = room[0];\n    free(room[1] - 64);\n    memory_free"),
]

# A program that looks around instead: what it finds out, it says in its only line.
HOSTILE = r"""
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    const char *const secret[] = {"ROOT/05_gather_write/gather_write.c", "/run/grade/reference",
                                  "/root/.profile", "/run/cmd"};
    int seen = 0, written = open("ROOT/results/by-a-student", O_CREAT | O_WRONLY, 0666) >= 0;
    for (unsigned i = 0; i < sizeof(secret) / sizeof(*secret); i++)
        seen += open(secret[i], O_RDONLY) >= 0;
    if (fork() == 0)
        for (;;)
            pause();
    printf("\033[2Jseen %d written %d as %d\n", seen, written, (int)getuid());
    return 0;
}
"""
# It fills memory and its process table, for ever: the others' turn comes all the same.
GREEDY = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void)
{
    for (;;) {
        char *more = malloc(1 << 20);
        if (more)
            memset(more, 1, 1 << 20);
        fork();
    }
}
"""
