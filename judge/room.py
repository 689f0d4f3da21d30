# SPDX-License-Identifier: BSD-2-Clause
"""Whether a program ever posts more than its queue pair holds. On a fast device the queue drains while one posts, and
nothing fails. But a request has its place until the program has polled its completion (or a later one's). The kernel
shares the queues' memory: with each post and each completion, their counters are written down."""
import os

from trace import ERROR

# struct rxe_queue_buf (rdma/rdma_user_rxe.h): producer_index, consumer_index
MADE, TAKEN = 128, 256
# ibv_create_qp says how many it really holds
TELLS_ALL = tuple(map(int, os.uname().release.split(".")[:2])) > (6, 1)


class Room:
    """The queues of a process's last queue pair, from a moment on at which it has posted no request."""

    def __init__(self, nic, thread):
        self.nic, self.names, self.qp, self.counts = nic, [], None, {}
        self.completed = []  # wr_id, and how many requests are done by then
        places, sizes, next_are = {}, {}, []
        for of, kind, f in nic.events():
            if of == thread and kind == "create_cq":
                next_are, sizes[f["cq"]] = [f["cq"]], f["cqe"]
            elif of == thread and kind == "create_qp":
                self.qp, next_are = f, ["send", "receive"]
                sizes |= {"send": f["send"], "receive": f["receive"]}
            elif of == thread and kind == "ring" and next_are and f["buf"] < ERROR:
                places[next_are.pop(0)] = f["buf"]
        for name, queue, at in (
            ("sent", "send", MADE),
            ("retired", "send", TAKEN),
            ("polled", "scq", TAKEN),
            ("ready", "receive", MADE),
            ("came", "rcq", TAKEN),
        ):
            queue = self.qp.get(queue, queue) if self.qp and queue[1:] == "cq" else queue
            if queue in places:  # the address of its counter, and where that begins again
                self.counts[name] = places[queue] + at, 1 << sizes[queue].bit_length()
        if len(self.counts) == 5:
            self.follow(thread)

    def follow(self, thread):
        words = " ".join(f"{name}=@{at:#x}:u32" for name, (at, _) in self.counts.items())
        events = {"post": "rxe_post_send of=$arg1:x64", "done": self.nic.where["completion"]}
        for name, where in events.items():
            self.names.append(f"{name}_{thread}")
            self.nic.watch(f"p:{name}_{thread} {where} {words}")

    def end(self):
        """Of its queues, the one that was to hold more than it can: which, how many, and how many it holds."""
        totals, known, over = dict.fromkeys(self.counts, 0), [0], None
        for _, kind, f in self.nic.events() if self.names else ():
            if kind not in self.names:
                continue
            for name, (_, size) in self.counts.items():
                totals[name] += (f[name] - totals[name]) % size
            if f["of"] == self.qp["scq"]:  # so many are done, as who polls this completion knows
                known.append(totals["retired"])
                self.completed += [(f["id"], totals["retired"])] * (f["status"] == 0)
            both = self.qp["scq"] == self.qp["rcq"]
            for which, held in (
                ("send", totals["sent"] - known[min(totals["polled"], len(known) - 1)]),
                ("receive", 0 if both else totals["ready"] - totals["came"]),
            ):
                most = (1 << self.qp[which].bit_length()) - 1 if TELLS_ALL else self.qp[which]
                if held > most and held > (over or (0, 0))[1]:
                    over = which, held, most
        for name in self.names:
            self.nic.unwatch(name)
        return over
