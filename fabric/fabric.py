#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A simulated InfiniBand fabric with the real OpenSM, and a shell in which the real tools work.

    fabric.py start [COMMAND]   a shell, or one command; TOPOLOGY, HOSTS, ROUTING say which fabric
    fabric.py NAME [ARGUMENT…]  in that shell: what COMMANDS below has; bin/NAME is a link to here

Three processes: this one waits for the shell. The keeper (keep) is its child. It starts ibsim and
the first OpenSM, and when its stdin ends - because this process has ended, however - it ends
everything and removes the directory. Each process of a fabric is known by IBSIM_SOCKNAME."""
import contextlib
import ctypes
import glob
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path[:0] = [os.path.dirname(os.path.realpath(__file__))]
import report  # noqa: E402
import topology  # noqa: E402

HERE = os.path.realpath(__file__)
SIM = (
    glob.glob("/usr/lib*/umad2sim/libumad2sim.so")
    + glob.glob("/usr/lib*/*/umad2sim/libumad2sim.so")
)[:1]
SBIN = ["/usr/sbin", "/usr/bin", "/sbin"]
TOOLS = re.compile(
    r"ib(?!sim)\w+|smp\w+|sm(info)|saquery|perfquery|dump_\w+|opensm|osmtest|vendstat"
)
LOG = "0x47"  # OpenSM's log: errors, what happens, and its tables as files
RC = '[ ! -f ~/.bashrc ] || . ~/.bashrc\nPATH=$FABRIC/bin:$PATH\nPS1="at \\$FABRIC_HOST> "\n'


def environment(folder):
    """What makes a tool a part of the fabric in this folder."""
    return {
        **os.environ,
        "FABRIC": folder,
        "IBSIM_SOCKNAME": os.path.basename(folder),
        "OSM_CACHE_DIR": folder,
        "OSM_TMP_DIR": folder,
        "PATH": f"{folder}/bin:{os.environ.get('PATH', '')}",
        "BASH_ENV": "",
    }


def in_fabric(name, *, but=()):
    """The processes that have this fabric's name in their environment."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        pid = int(path.split("/")[2])
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if f"IBSIM_SOCKNAME={name}".encode() in file.read().split(b"\0") and pid not in but:
                yield pid


def alive(pid):
    """A process that has ended stays a zombie until its parent has asked."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    return False


def end_all(folder):
    """Kills what is left of a fabric until nothing is, and removes its files."""
    killed, us = set(), (os.getpid(), os.getppid())
    while left := {*in_fabric(os.path.basename(folder), but=us), *filter(alive, killed)}:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= left
        time.sleep(0.02)
    with contextlib.suppress(OSError), open(f"{folder}/used", encoding="utf-8") as file:
        for left in [
            path for line in set(file) for path in glob.glob(line.rstrip("\n") + "/sys-*")
        ]:
            # Each tool has such a directory for a while, and leaves it if it is killed.
            is_ours = os.path.exists(left + "/sys/class/infiniband_mad")
            if is_ours and not alive(left.rsplit("-", 1)[1]):
                shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def with_parent():
    """In a child: it dies with its parent."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def keep(folder, *limits):
    """The keeper: see above."""
    os.setsid()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    os.mkfifo(f"{folder}/console")
    console = os.open(f"{folder}/console", os.O_RDWR)
    with open(f"{folder}/ibsim.log", "wb") as log:
        command = ["ibsim", "-s", *limits, f"{folder}/net"]
        ibsim = subprocess.Popen(
            command, stdin=console, stdout=log, stderr=log, cwd=folder, preexec_fn=with_parent
        )
    died = False
    while not died and not select.select([0], [], [], 0.2)[0]:
        died = ibsim.poll() is not None
    if died:
        with open(f"{folder}/died", "w", encoding="utf-8") as file:
            file.write(f"exit status {ibsim.returncode}: {said(folder + '/ibsim.log')}")
        for shell in in_fabric(os.path.basename(folder), but=(os.getpid(), os.getppid())):
            with contextlib.suppress(OSError):
                os.kill(shell, signal.SIGHUP)
        select.select([0], [], [], 2)
    end_all(folder)


def said(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line for line in file.read().splitlines() if line.strip(" #") and line != "sim> "]
    return lines[-1] if lines else "no word"


def wait_for(what, seconds, folder):
    """Until what() is true. No fabric that this machine can hold takes as long as this."""
    end, pause = time.monotonic() + seconds, 0.02
    while not (found := what()):
        if os.path.exists(f"{folder}/died"):
            with open(f"{folder}/died", encoding="utf-8") as file:
                sys.exit(f"fabric: the simulator has ended: {file.read()}")
        if time.monotonic() > end:
            sys.exit(f"fabric: not there after {seconds} s: {folder}")
        time.sleep(pause)
        pause = min(pause * 1.2, 0.5)
    return found


def link_tools(folder):
    os.mkdir(f"{folder}/bin")
    for place in reversed(SBIN):
        for name in os.listdir(place) if os.path.isdir(place) else []:
            if TOOLS.fullmatch(name):
                with contextlib.suppress(FileExistsError):
                    os.symlink(HERE, f"{folder}/bin/{name}")
    for name in COMMANDS:
        os.symlink(HERE, f"{folder}/bin/{name}")
    with open(f"{folder}/rc", "w", encoding="utf-8") as file:
        file.write(RC)


def write_files(folder, text, nodes):
    """What ibsim, OpenSM and find read."""
    with open(f"{folder}/opensm.conf", "w", encoding="utf-8") as file:
        file.write("force_log_flush TRUE\nsminfo_polling_timeout 1000\n")
    with open(f"{folder}/net", "w", encoding="utf-8") as file:
        file.write(text + "\n\n")
    with open(f"{folder}/names", "w", encoding="utf-8") as file:
        file.writelines(f"{node.id}\t{node.switch:d}\t{node.name}\n" for node in nodes.values())


def start(*command):
    """A fabric for as long as a shell or a command runs."""
    kind, hosts = os.environ.get("TOPOLOGY") or "fat-tree", os.environ.get("HOSTS") or "8"
    text, nodes = topology.load(kind, hosts)
    if not SIM:
        sys.exit("fabric: no libumad2sim.so: the package libumad2sim0 (Debian, Ubuntu) is missing")
    for signum in signal.SIGTERM, signal.SIGHUP:
        signal.signal(signum, lambda *_: sys.exit(1))
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    folder = tempfile.mkdtemp(prefix="fabric-")
    env = environment(folder)
    link_tools(folder)
    write_files(folder, text, nodes)
    ports = sum(node.ports + 1 for node in nodes.values()) + 1
    limits = [
        "-N",
        len(nodes) + 1,
        "-S",
        len(nodes) + 1,
        "-P",
        ports,
        "-L",
        max(len(nodes) + 64, 1024),
    ]
    keeper = subprocess.Popen(
        [sys.executable, HERE, "keep", folder, *map(str, limits)], stdin=subprocess.PIPE, env=env
    )
    try:
        return serve(folder, nodes, env, command)
    except KeyboardInterrupt:
        return 130
    finally:
        keeper.stdin.close()
        keeper.wait()
        end_all(folder)  # if the keeper could not
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0):  # those whose parents ended before them, too: see prctl
                pass


def serve(folder, nodes, env, command):
    began = time.monotonic()
    os.environ.update(env)
    wait_for(lambda: "simulator ready" in read_log(folder, "ibsim"), 300, folder)
    first = next(node for node in nodes.values() if not node.switch)
    env |= {"SIM_HOST": first.id, "FABRIC_HOST": first.name}
    os.environ.update(env)
    start_sm(first.name, *(["-R", os.environ["ROUTING"]] if os.environ.get("ROUTING") else []))
    switches = sum(node.switch for node in nodes.values())
    print(
        f"{len(nodes) - switches} hosts, {switches} switches; OpenSM at {first.name}: routed after "
        f"{time.monotonic() - began:.1f} s. exit ends it; fabric-help lists the commands.",
        flush=True,
    )
    if command:
        return subprocess.call(["bash", "-c", *command], env=env)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the shell
    status = subprocess.call(
        ["bash", "--rcfile", f"{folder}/rc", "-i"], env=env, preexec_fn=own_ctrl_c
    )
    with contextlib.suppress(OSError), open(f"{folder}/died", encoding="utf-8") as file:
        sys.exit(f"fabric: the simulator has ended: {file.read()}")
    return status


def own_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read_log(folder, name, begin=0):
    with contextlib.suppress(FileNotFoundError), open(f"{folder}/{name}.log", "rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")
    return ""


# --- In the shell: what each command does. FABRIC is the directory.


def find(name):
    """The id of a node, and whether it is a switch, by its name or id."""
    with open(os.environ["FABRIC"] + "/names", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 2) for line in file]
    for row in rows:
        if name in (row[0], row[2]):
            return row[0], row[1] == "1", row[2]
    some = ", ".join(row[2] for row in rows[-3:])
    sys.exit(f"fabric: there is no {name!r} in this fabric; there are {some} …")


def at(name, *command):
    """at HOST [COMMAND…]: a command (a shell, if there is none) at another host"""
    node, _, name = find(name)
    command = command or ["bash", "--rcfile", os.environ["FABRIC"] + "/rc", "-i"]
    os.execvpe(command[0], command, {**os.environ, "SIM_HOST": node, "FABRIC_HOST": name})


def console(*words):
    """What the simulator answers to a command."""
    folder = os.environ["FABRIC"]
    begin = os.path.getsize(f"{folder}/ibsim.log")
    with open(f"{folder}/console", "w", encoding="utf-8") as file:
        file.write(" ".join(words) + "\n# end\n")
    wait_for(lambda: "# end" in read_log(folder, "ibsim", begin), 10, folder)
    return read_log(folder, "ibsim", begin).split("# end")[0].replace("sim> ", "").strip("\n")


def sim(*words):
    """sim COMMAND…: a command for the simulator's console (sim help lists them)"""
    print(console(*words))


def link_of(a, b):
    """The description's id and port of a, on a link to b that is up (else None)."""
    (a, _, _), (b, _, _) = find(a), find(b)
    with open(os.environ["FABRIC"] + "/net", encoding="utf-8") as file:
        nodes = topology.read(file.read())
    ports = [port for port, (peer, _, _) in nodes[a].links.items() if peer == b]
    if not ports:
        sys.exit(f"fabric: {a} and {b} have no link")
    return a, ports


def cut(a, *more):
    """cut A B: cut all links between two nodes"""
    if a.startswith("-"):  # a script wants the other cut
        os.execv("/usr/bin/cut", ["cut", a, *more])
    change("Unlink", a, *more)


def mend(a, b):
    """mend A B: join them again"""
    change("ReLink", a, b)


def change(verb, a, b):
    """And waits for what OpenSM makes of it."""
    node, ports = link_of(a, b)
    for port in ports:
        console(f'{verb} "{node}"[{port}]')
        print(f"{verb} port {port} of {a}")
    sweep()


def sweep():
    """sweep: let OpenSM look at the whole fabric again"""
    folder = os.environ["FABRIC"]
    begin = os.path.getsize(f"{folder}/opensm.log")
    for pid in in_fabric(os.environ["IBSIM_SOCKNAME"]):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", encoding="utf-8") as file:
            if file.read() == "opensm\n":
                os.kill(pid, signal.SIGHUP)
    whole = re.compile(r"INITIATING HEAVY SWEEP .*(\* SUBNET UP \*|ERR 0D01)", re.S)
    wait_for(lambda: whole.search(read_log(folder, "opensm", begin)), 600, folder)


def start_sm(name, *options):
    """start-sm HOST [OPTION…]: OpenSM at a host (-p 5: with this priority; -R updn: its routing)"""
    folder, (node, _, name) = os.environ["FABRIC"], find(name)
    begin = len(read_log(folder, "opensm").encode())
    env = {
        **os.environ,
        "SIM_HOST": node,
        "FABRIC_HOST": name,
        "FABRIC_SM": name,
        "LD_PRELOAD": SIM[0],
    }
    options = [os.path.abspath(o) if os.path.isfile(o) else o for o in options]
    command = [
        shutil.which("opensm", path=":".join(SBIN)),
        "-F",
        f"{folder}/opensm.conf",
        "-f",
        f"{folder}/opensm.log",
        "-D",
        LOG,
    ]
    with open(f"{folder}/opensm.out", "ab") as out:
        subprocess.Popen(
            [*command, *options],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=env,
            cwd=folder,
        )
    done = re.compile("SUBNET UP|Entering STANDBY|[Ee]xiting|ERR.*rout|not a.*fat-tree")
    wait_for(lambda: done.search(read_log(folder, "opensm", begin)), 600, folder)


def stop_sm(name):
    """stop-sm HOST: end the OpenSM at a host"""
    name, stopped = find(name)[2], []
    for pid in in_fabric(os.environ["IBSIM_SOCKNAME"]):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if f"FABRIC_SM={name}".encode() in file.read().split(b"\0"):
                os.kill(pid, signal.SIGTERM)
                stopped.append(pid)
    if not stopped:
        sys.exit(f"fabric: no OpenSM at {name}")
    wait_for(lambda: not any(map(alive, stopped)), 60, os.environ["FABRIC"])


def tool(name, *arguments):
    """Becomes a tool of the InfiniBand packages, with the simulated device."""
    path = shutil.which(name, path=":".join(SBIN))
    env = {**os.environ, "LD_PRELOAD": SIM[0]}
    env["PATH"] = env["PATH"] + ":" + ":".join(SBIN)
    with open(os.environ["FABRIC"] + "/used", "a", encoding="utf-8") as file:
        file.write(os.getcwd() + "\n")
    if name == "ibstatus":
        path, arguments = sys.executable, [HERE, name, *arguments]
    os.execve(path, [name, *arguments], env)


def ibstatus(*devices):
    """Is a script that looks into /sys by itself. Where the library has put that, this process knows."""
    os.listdir("/sys/class/infiniband")
    with open(shutil.which("ibstatus", path=":".join(SBIN)), encoding="utf-8") as file:
        script = file.read().replace(
            "/sys/class/infiniband", f"{os.getcwd()}/sys-{os.getpid()}/sys/class/infiniband"
        )
    env = {**os.environ, "LD_PRELOAD": ""}
    return subprocess.call(["bash", "-c", script, "ibstatus", *devices], env=env)


def fabric_help():
    """fabric-help: this list"""
    for command in COMMANDS.values():
        name, what = command.__doc__.split("\n")[0].split(": ", 1)
        print(f"  {name:<26} {what}")
    print(
        "  ibhosts ibroute smpquery saquery perfquery …  the packages' tools: see their man pages"
    )


COMMANDS = {
    f.__name__.replace("_", "-"): f
    for f in (at, cut, mend, sweep, start_sm, stop_sm, sim, fabric_help, *report.COMMANDS)
}


def main(name="start", *arguments):
    if name in ("start", "keep"):
        return {"start": start, "keep": keep}[name](*arguments)
    if name == "ibstatus" and os.environ.get("LD_PRELOAD"):
        return ibstatus(*arguments)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # load | head
    return COMMANDS[name](*arguments) if name in COMMANDS else tool(name, *arguments)


if __name__ == "__main__":
    called = os.path.basename(sys.argv[0])
    sys.exit(main(*sys.argv[1:]) if called == "fabric.py" else main(called, *sys.argv[1:]))
