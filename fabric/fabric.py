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
from report import read_file  # noqa: E402

# Not by python3 of PATH: pyenv's is a script that calls cut itself.
OURS = [sys.executable, os.path.realpath(__file__)]
SBIN = "/usr/sbin"
SYS = "/sys/class/infiniband"
SIM = "".join([*glob.glob("/usr/lib*/umad2sim/*.so"), *glob.glob("/usr/lib*/*/umad2sim/*.so")][:1])
TOOLS = re.compile("ib(?!sim).*|smp.*|sminfo|saquery|perfquery|dump_.*|opensm|osmtest|vendstat")
RC = '[ ! -f ~/.bashrc ] || . ~/.bashrc\nPATH=$FABRIC/bin:$PATH\nPS1="at \\$FABRIC_HOST> "\n'
# OpenSM looks at its log's file, and at the other SM, often enough for a lab. At the fabric it looks
# after a trap and when told to (sweep), not by itself in the middle of a step; 0 would stop all.
CONF = "force_log_flush TRUE\nsminfo_polling_timeout 1000\nsweep_interval 9999\n"
# How the commands begin. coreutils has a cut, too. The library makes a directory for a tool, which
# a tool that is killed leaves.
CUT = '#!/bin/sh\ncase $1 in -*) exec /usr/bin/cut "$@" ;; esac\n'
TOOL = f'#!/bin/sh\necho "$PWD/sys-$$" >>"$FABRIC/left"\nexport LD_PRELOAD={SIM}\n'


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
                os.kill(pid, how)
        how = signal.SIGKILL
        time.sleep(0.1)
    with contextlib.suppress(OSError), open(f"{folder}/left", encoding="utf-8") as file:
        for path in file:
            shutil.rmtree(path.rstrip("\n"), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def keep(folder):
    """Ends everything when the pipe has no writer any more: when start has ended, however."""
    sys.stdin.read()
    end_all(folder)


def wait_for(log, begin, pattern):
    """What a log says from there on, once that matches. 10,000 hosts took five minutes on a very
    busy machine."""
    deadline = time.monotonic() + 3600
    while time.monotonic() < deadline and os.statvfs(os.environ["FABRIC"]).f_bavail:
        if re.search(pattern, said := read_file(log)[begin:], re.S):
            return said
        time.sleep(0.1)
    sys.exit(f"fabric: no answer for an hour, or no space left in {os.environ['FABRIC']}")


def start_simulator(folder, nodes):
    """ibsim, and what it, OpenSM, bash and the commands read."""
    net = "".join(node.text() for node in nodes)
    texts = {"net": net, "opensm.conf": CONF, "rc": RC, "ibsim.log": "", "opensm.log": ""}
    for name in filter(TOOLS.fullmatch, os.listdir(SBIN)):
        texts[f"bin/{name}"] = f'{TOOL}exec {SBIN}/{name} "$@"\n'
    for name in COMMANDS:
        begin = {"cut": CUT, "ibstatus": f'{TOOL}cd "$FABRIC"\n'}.get(name, "#!/bin/sh\n")
        texts[f"bin/{name}"] = f'{begin}exec {shlex.join([*OURS, name])} "$@"\n'
    os.mkdir(f"{folder}/bin")
    for name, text in texts.items():
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
            os.chmod(file.name, 0o755)
    os.mkfifo(f"{folder}/console")
    most, ports = str(len(nodes) + 64), str(sum(node.ports + 1 for node in nodes) + 1)
    command = ["ibsim", "-s", "-N", most, "-S", most, "-P", ports, f"{folder}/net"]
    stdin = os.open(f"{folder}/console", os.O_RDWR)
    with open(f"{folder}/ibsim.log", "wb") as log:
        return subprocess.Popen(command, stdin=stdin, stdout=log, stderr=log, cwd=folder)


def run(ibsim, *command):
    """The status of a command, which the simulator must survive."""
    child = subprocess.Popen(command)
    while child.poll() is None:
        if ibsim.poll() is not None:
            said = re.findall("\nibwarn: .+?: ((?!cannot parse).+)", read_file("ibsim.log"))
            sys.exit(f"fabric: the simulator has ended: {(said or ['no word'])[-1]}")
        time.sleep(0.1)
    return child.returncode


def start(*command):
    """A fabric for as long as a shell or a command runs."""
    nodes = topology.load(os.getenv("TOPOLOGY") or "fat-tree", os.getenv("HOSTS") or "8")
    for signum in signal.SIGTERM, signal.SIGHUP:
        signal.signal(signum, lambda *_: sys.exit(1))
    terminal = termios.tcgetattr(0) if os.isatty(0) else None
    folder = tempfile.mkdtemp(prefix="fabric-")
    keeper = [*OURS, "keep", folder]
    keeper = subprocess.Popen(keeper, stdin=subprocess.PIPE, start_new_session=True)
    try:
        return serve(folder, nodes, command)
    except KeyboardInterrupt:
        return 130
    finally:
        for signum in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTOU:
            signal.signal(signum, signal.SIG_IGN)
        keeper.stdin.close()
        end_all(folder)  # if the keeper could not
        if terminal:  # of a shell that was killed
            termios.tcsetattr(0, termios.TCSADRAIN, terminal)


def serve(folder, nodes, command):
    began = time.monotonic()
    first = next(filter(topology.Node.has_seat, nodes))
    os.environ |= {
        "FABRIC": folder, "IBSIM_SOCKNAME": os.path.basename(folder), "OSM_CACHE_DIR": folder,
        "OSM_TMP_DIR": folder, "IBPATH": shlex.quote(f"{folder}/bin"), "SIM_HOST": first.id,
        "FABRIC_HOST": first.name, "PATH": f"{folder}/bin:{os.environ['PATH']}:{SBIN}",
    }  # fmt: skip
    ibsim = start_simulator(folder, nodes)
    routing = ["-R", os.environ["ROUTING"]] if os.getenv("ROUTING") else []
    if run(ibsim, "start-sm", first.id, *routing):
        return 1
    switches = sum(node.kind == "Switch" for node in nodes)
    hosts = sum(node.is_host() for node in nodes)
    took = f"{time.monotonic() - began:.1f} s"
    print(
        f"{hosts} hosts, {switches} switches; OpenSM at {first.name}: routed after {took}.", end=" "
    )
    print("exit ends it; fabric-help lists the commands.", flush=True)
    signal.signal(signal.SIGINT, lambda *_: None)  # it is for the shell
    shell = ["-c", *command] if command else ["--rcfile", f"{folder}/rc", "-i"]
    return run(ibsim, "bash", *shell)


# --- In the shell: what each command does.


def find(name):
    """The node of this name or id."""
    found = [n for n in topology.read(read_file("net")) if name in (n.name, n.id)]
    if len(found) != 1:
        sys.exit(f"fabric: {len(found)} nodes are called {name!r}; $FABRIC/net has their ids")
    return found[0]


def seat(name):
    """The environment of who sits at a node."""
    node = find(name)
    if node.kind != "Switch" and not node.has_seat():
        sys.exit(f"fabric: {name} has no link at port 1, where the simulated tools sit")
    return {**os.environ, "SIM_HOST": node.id, "FABRIC_HOST": node.name}


def at(name, *command):
    """at HOST [COMMAND…]: a command (a shell, if there is none) at another host"""
    command = command or ("bash", "--rcfile", os.environ["FABRIC"] + "/rc", "-i")
    os.execvpe(command[0], command, seat(name))


def console(command):
    """What the simulator answers."""
    begin = len(read_file("ibsim.log"))
    with open(os.environ["FABRIC"] + "/console", "w", encoding="utf-8") as file:
        file.write(command + "\n# end\n")
    return wait_for("ibsim.log", begin, "# end").split("# end")[0].replace("sim> ", "").strip("\n")


def sim(*words):
    """sim COMMAND…: a command for the simulator's console (sim help lists them)"""
    print(console(" ".join(words)))


def cut(a, b, *, verb="Unlink"):
    """cut A B: cut all links between two nodes"""
    node, peer = find(a), find(b)
    ports = [port for port, link in node.links.items() if link[0] == peer.id]
    for port in ports:
        console(f'{verb} "{node.id}"[{port}]')
        print(f"{verb} port {port} of {a}")
    if not ports:
        sys.exit(f"fabric: {a} and {b} have no link")
    sweep()


def mend(a, b):
    """mend A B: join them again"""
    cut(a, b, verb="ReLink")


def sweep():
    """sweep: let OpenSM look at the whole fabric again"""
    begin = len(read_file("opensm.log"))
    for pid in running(f"FABRIC_SM={os.environ['FABRIC']} "):
        os.kill(pid, signal.SIGHUP)
    wait_for("opensm.log", begin, r"INITIATING HEAVY SWEEP .*(\* SUBNET UP \*|ERR 0D01)")


def start_sm(name, *options):
    """start-sm HOST [OPTION…]: OpenSM at a host (-p 5: with this priority; -R updn: its routing)"""
    folder, env = os.environ["FABRIC"], seat(name)
    wait_for("ibsim.log", 0, "simulator ready")
    begin = len(read_file("opensm.log"))
    options = [os.path.abspath(o) if os.path.isfile(o) else o for o in options]
    # -D 0x47: log errors and what happens, and dump tables
    command = [f"{SBIN}/opensm", "-F", "opensm.conf", "-f", f"{folder}/opensm.log", "-D", "0x47"]
    env |= {"FABRIC_SM": f"{folder} {env['SIM_HOST']} ", "LD_PRELOAD": SIM}
    files = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    subprocess.Popen([*command, *options], env=env, cwd=folder, **files)
    done = r"SUBNET UP|SM PORT DOWN|Entering STANDBY|[Ee]xiting|ERR[^\n]*rout|not a[^\n]*fat-tree"
    wait_for("opensm.log", begin, done)


def stop_sm(name):
    """stop-sm HOST: end the OpenSM at a host"""
    mark = f"FABRIC_SM={os.environ['FABRIC']} {find(name).id} "
    if not (stopped := [*running(mark)]):
        sys.exit(f"fabric: no OpenSM at {name}")
    for pid in stopped:
        os.kill(pid, signal.SIGTERM)
    while [*running(mark)]:
        time.sleep(0.1)


def ibstatus(*arguments):
    """ibstatus [DEVICE[:PORT]]: the ports here, as /sys has them"""
    # A shell script that reads /sys by itself. The library puts that elsewhere for as long as a
    # process lives that has looked there with it. That must be no shell: a shell handles SIGCHLD,
    # which breaks off the library's poll at each child's end: "ERR: real_poll failure".
    del os.environ["LD_PRELOAD"]
    os.listdir(SYS)
    with open(f"{SBIN}/ibstatus", encoding="utf-8") as file:
        script = file.read().replace(SYS, f"{os.environ['FABRIC']}/sys-{os.getpid()}{SYS}")
    return subprocess.run(["sh", "-c", script, "ibstatus", *arguments], check=False).returncode


def fabric_help():
    """fabric-help: this list"""
    for command in COMMANDS.values():
        name, what = command.__doc__.split(": ", 1)
        print(f"  {name:<26} {what}")
    print("  ibhosts ibroute smpquery saquery …  the packages' tools: see their man pages")


COMMANDS = {
    f.__name__.replace("_", "-"): f
    for f in (at, cut, mend, sweep, start_sm, stop_sm, sim, ibstatus, fabric_help, *report.COMMANDS)
}


def main(name="start", *arguments):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # load | head
    command = {"start": start, "keep": keep, **COMMANDS}[name]
    try:
        inspect.signature(command).bind(*arguments)
    except TypeError:
        sys.exit(command.__doc__)
    return command(*arguments)


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as problem:
        sys.exit(f"fabric: {problem}")
