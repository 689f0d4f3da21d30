#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A simulated InfiniBand fabric with the real OpenSM, and a shell in which the real tools work.

    fabric.py start [COMMAND]   a shell, or one command; TOPOLOGY, HOSTS, ROUTING say which fabric
    fabric.py NAME [ARGUMENT…]  in that shell: what COMMANDS below has; bin/NAME calls it

Each process of a fabric has FABRIC=its directory in its environment."""
import contextlib
import glob
import inspect
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time

sys.path[:0] = [os.path.dirname(os.path.realpath(__file__))]
import report  # noqa: E402
import topology  # noqa: E402

HERE = os.path.realpath(__file__)
SBIN = "/usr/sbin"
SIM = "".join([*glob.glob("/usr/lib*/umad2sim/*.so"), *glob.glob("/usr/lib*/*/umad2sim/*.so")][:1])
TOOLS = re.compile("ib(?!sim).*|smp.*|sminfo|saquery|perfquery|dump_.*|opensm|osmtest|vendstat")
RC = '[ ! -f ~/.bashrc ] || . ~/.bashrc\nPATH=$FABRIC/bin:$PATH\nPS1="at \\$FABRIC_HOST> "\n'
# OpenSM looks at its log's file, and at the other SM, often enough for a lab. At the fabric it looks
# after a trap and when told to (sweep), not by itself in the middle of a step; 0 would stop all.
CONF = "force_log_flush TRUE\nsminfo_polling_timeout 1000\nsweep_interval 9999\n"
SCRIPTS_CUT = 'case $1 in -*) exec /usr/bin/cut "$@" ;; esac\n'  # coreutils has a cut, too
# ibstatus looks into /sys by itself. This shell has the library, which puts that elsewhere.
IBSTATUS = """: /sys/class/infiniband/*
sed "s|/sys/class/infiniband|$FABRIC/sys-$$&|" "$0" | LD_PRELOAD= bash -s -- "$@" """


def running(mark):
    """The processes of this user with a variable in their environment that begins so."""
    for path in glob.glob("/proc/[0-9]*/environ"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if b"\0" + mark.encode() in b"\0" + file.read():
                yield int(path.split("/")[2])


def end_all(folder):
    """Kills what is left of a fabric until nothing is, and removes its files."""
    how = signal.SIGHUP  # upon which a shell gives back the terminal as it was
    while left := [*running(f"FABRIC={folder}")]:
        for pid in left:
            with contextlib.suppress(OSError):
                place = os.readlink(f"/proc/{pid}/cwd")
                os.kill(pid, how)
                if how == signal.SIGKILL:
                    shutil.rmtree(f"{place}/sys-{pid}", ignore_errors=True)  # see tool
        how = signal.SIGKILL
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def start_keeper(folder):
    """A process that ends everything when the pipe has no writer any more: when this process has
    closed it, or has ended, however."""
    watched, ours = os.pipe()
    if not os.fork():
        os.setsid()
        os.close(ours)
        os.read(watched, 1)
        end_all(folder)
        os._exit(0)
    os.close(watched)
    return ours


def read_log(name, begin=0):
    with open(f"{os.environ['FABRIC']}/{name}.log", "rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def wait_for(what):
    """Until what() is true. 10,000 hosts took five minutes on a very busy machine."""
    deadline = time.monotonic() + 3600
    while not what():
        if time.monotonic() > deadline:
            sys.exit("fabric: ibsim or OpenSM has given no answer for an hour")
        if not os.statvfs(os.environ["FABRIC"]).f_bavail:
            sys.exit(f"fabric: no space left in {os.environ['FABRIC']}")
        time.sleep(0.1)


def make_folder(nodes):
    """What ibsim, OpenSM, bash and the commands read."""
    folder = os.environ["FABRIC"]
    net = "".join(node.text() for node in nodes.values())
    files = {"net": net, "opensm.conf": CONF, "rc": RC, "ibsim.log": "", "opensm.log": ""}
    for name, text in files.items():
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    os.mkfifo(f"{folder}/console")
    os.mkdir(f"{folder}/bin")
    for name in {*filter(TOOLS.fullmatch, os.listdir(SBIN)), *COMMANDS}:
        # Not by python3 of PATH: pyenv's is a script that calls cut itself.
        ours = shlex.join([sys.executable, HERE, name]) + ' "$@"'
        with open(f"{folder}/bin/{name}", "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n{SCRIPTS_CUT if name == 'cut' else ''}exec {ours}\n")
        os.chmod(file.name, 0o755)


def start_simulator(nodes):
    folder, most = os.environ["FABRIC"], str(len(nodes) + 64)
    ports = str(sum(node.ports + 1 for node in nodes.values()) + 1)
    console = os.open(f"{folder}/console", os.O_RDWR)
    command = ["ibsim", "-s", "-N", most, "-S", most, "-P", ports, f"{folder}/net"]
    with open(f"{folder}/ibsim.log", "wb") as log:
        return subprocess.Popen(command, stdin=console, stdout=log, stderr=log, cwd=folder)


def run(ibsim, *command):
    """The status of a command, which the simulator must survive."""
    child = subprocess.Popen(command)
    while child.poll() is None:
        if ibsim.poll() is not None:
            said = re.findall("(?m)^(?:ib|fatal).+", read_log("ibsim")) or ["no word"]
            sys.exit(f"fabric: the simulator has ended: {said[-1]}")
        time.sleep(0.1)
    return child.returncode


def start(*command):
    """A fabric for as long as a shell or a command runs."""
    nodes = topology.load(os.getenv("TOPOLOGY") or "fat-tree", os.getenv("HOSTS") or "8")
    for signum in signal.SIGTERM, signal.SIGHUP:
        signal.signal(signum, lambda *_: sys.exit(1))
    terminal = termios.tcgetattr(0) if os.isatty(0) else None
    folder = tempfile.mkdtemp(prefix="fabric-")
    pipe = start_keeper(folder)
    try:
        return serve(folder, nodes, command)
    except KeyboardInterrupt:
        return 130
    finally:
        for signum in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTOU:
            signal.signal(signum, signal.SIG_IGN)
        os.close(pipe)
        end_all(folder)  # if the keeper could not
        if terminal:  # of a shell that was killed
            termios.tcsetattr(0, termios.TCSADRAIN, terminal)


def serve(folder, nodes, command):
    began = time.monotonic()
    first = next(node for node in nodes.values() if node.host and 1 in node.links)
    os.environ |= {
        "FABRIC": folder, "IBSIM_SOCKNAME": os.path.basename(folder), "OSM_CACHE_DIR": folder,
        "OSM_TMP_DIR": folder, "IBPATH": shlex.quote(f"{folder}/bin"), "SIM_HOST": first.id,
        "FABRIC_HOST": first.name, "PATH": f"{folder}/bin:{os.environ['PATH']}:{SBIN}",
    }  # fmt: skip
    make_folder(nodes)
    ibsim = start_simulator(nodes)
    routing = ["-R", os.environ["ROUTING"]] if os.getenv("ROUTING") else []
    if run(ibsim, "start-sm", first.id, *routing):
        return 1
    hosts, switches = (sum(getattr(n, a) for n in nodes.values()) for a in ("host", "switch"))
    print(
        f"{hosts} hosts, {switches} switches; OpenSM at {first.name}: routed after "
        f"{time.monotonic() - began:.1f} s. exit ends it; fabric-help lists the commands.",
        flush=True,
    )
    signal.signal(signal.SIGINT, lambda *_: None)  # it is for the shell
    shell = ["-c", *command] if command else ["--rcfile", f"{folder}/rc", "-i"]
    return run(ibsim, "bash", *shell)


# --- In the shell: what each command does.


def find(name):
    """The node of this name or id."""
    with open(os.environ["FABRIC"] + "/net", encoding="utf-8") as file:
        nodes = topology.read(file.read()).values()
    found = [node for node in nodes if name in (node.name, node.id)]
    if len(found) == 1:
        return found[0]
    some = ", ".join(node.id for node in (found or [*nodes])[-3:])
    sys.exit(f"fabric: {len(found)} nodes are called {name!r}; there are {some} …")


def seat(name):
    """The environment of who sits at a node."""
    node = find(name)
    if not node.switch and 1 not in node.links:
        sys.exit(f"fabric: {name} has no link at port 1, where the simulated tools sit")
    return {**os.environ, "SIM_HOST": node.id, "FABRIC_HOST": node.name}


def at(name, *command):
    """at HOST [COMMAND…]: a command (a shell, if there is none) at another host"""
    command = command or ("bash", "--rcfile", os.environ["FABRIC"] + "/rc", "-i")
    os.execvpe(command[0], command, seat(name))


def console(*words):
    """What the simulator answers to a command."""
    folder = os.environ["FABRIC"]
    begin = os.path.getsize(f"{folder}/ibsim.log")
    with open(f"{folder}/console", "w", encoding="utf-8") as file:
        file.write(" ".join(words) + "\n# end\n")
    wait_for(lambda: "# end" in read_log("ibsim", begin))
    return read_log("ibsim", begin).split("# end")[0].replace("sim> ", "").strip("\n")


def sim(*words):
    """sim COMMAND…: a command for the simulator's console (sim help lists them)"""
    print(console(*words))


def cut(a, b):
    """cut A B: cut all links between two nodes"""
    change("Unlink", a, b)


def mend(a, b):
    """mend A B: join them again"""
    change("ReLink", a, b)


def change(verb, a, b):
    """And waits for what OpenSM makes of it."""
    node, peer = find(a), find(b)
    ports = [port for port, link in node.links.items() if link[0] == peer.id]
    for port in ports:
        console(f'{verb} "{node.id}"[{port}]')
        print(f"{verb} port {port} of {a}")
    if not ports:
        sys.exit(f"fabric: {a} and {b} have no link")
    sweep()


def sweep():
    """sweep: let OpenSM look at the whole fabric again"""
    folder = os.environ["FABRIC"]
    begin = os.path.getsize(f"{folder}/opensm.log")
    for pid in running(f"FABRIC_SM={folder} "):
        os.kill(pid, signal.SIGHUP)
    whole = re.compile(r"INITIATING HEAVY SWEEP .*(\* SUBNET UP \*|ERR 0D01)", re.S)
    wait_for(lambda: whole.search(read_log("opensm", begin)))


def start_sm(name, *options):
    """start-sm HOST [OPTION…]: OpenSM at a host (-p 5: with this priority; -R updn: its routing)"""
    folder, env = os.environ["FABRIC"], seat(name)
    wait_for(lambda: "simulator ready" in read_log("ibsim"))
    begin = os.path.getsize(f"{folder}/opensm.log")
    options = [os.path.abspath(o) if os.path.isfile(o) else o for o in options]
    # -D 0x47: log errors and what happens, and dump tables
    command = [f"{SBIN}/opensm", "-F", "opensm.conf", "-f", f"{folder}/opensm.log", "-D", "0x47"]
    env |= {"FABRIC_SM": f"{folder} {env['SIM_HOST']} ", "LD_PRELOAD": SIM}
    files = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen([*command, *options], env=env, cwd=folder, **files)
    done = re.compile(
        "SUBNET UP|SM PORT DOWN|Entering STANDBY|[Ee]xiting|ERR.*rout|not a.*fat-tree"
    )
    wait_for(lambda: done.search(read_log("opensm", begin)))


def stop_sm(name):
    """stop-sm HOST: end the OpenSM at a host"""
    mark = f"FABRIC_SM={os.environ['FABRIC']} {find(name).id} "
    if not (stopped := [*running(mark)]):
        sys.exit(f"fabric: no OpenSM at {name}")
    for pid in stopped:
        os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not [*running(mark)])


def fabric_help():
    """fabric-help: this list"""
    for command in COMMANDS.values():
        name, what = command.__doc__.split("\n")[0].split(": ", 1)
        print(f"  {name:<26} {what}")
    print("  ibhosts ibroute smpquery saquery …  the packages' tools: see their man pages")


def tool(name, *arguments):
    """Runs a tool of the InfiniBand packages with the simulated device. The library makes a
    directory for it, which a tool that is killed leaves."""
    path, env = f"{SBIN}/{name}", {**os.environ, "LD_PRELOAD": SIM}
    command = ["bash", "-c", IBSTATUS, path] if name == "ibstatus" else [path]
    signal.signal(signal.SIGINT, lambda *_: None)  # it is for the tool
    cwd = env["FABRIC"] if name == "ibstatus" else None  # which can't have a blank in its way
    run = subprocess.Popen([*command, *arguments], env=env, cwd=cwd)
    status = run.wait()
    shutil.rmtree(f"sys-{run.pid}", ignore_errors=True)
    return status if status >= 0 else 128 - status


COMMANDS = {
    f.__name__.replace("_", "-"): f
    for f in (at, cut, mend, sweep, start_sm, stop_sm, sim, fabric_help, *report.COMMANDS)
}


def main(name="start", *arguments):
    if name == "start":
        return start(*arguments)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # load | head
    if name not in COMMANDS:
        return tool(name, *arguments)
    try:
        inspect.signature(COMMANDS[name]).bind(*arguments)
    except TypeError:
        sys.exit(COMMANDS[name].__doc__.split("\n")[0])
    return COMMANDS[name](*arguments)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as problem:
        sys.exit(f"fabric: {problem}")
