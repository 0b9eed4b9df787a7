"""The acting part of the benchmark: getting in, running a line, and being there unused."""
import os
import shutil
import statistics
import subprocess
import time

import victims
from commands import Commands, fields
from interpreters import eventually
from peers import RUNNERS, proc_in_root, usable_peers
from report import median, show, skip, timed
from victims import Victim

IDLE, BUSY = "idle", "sums"
TARGETS = [IDLE, BUSY, "wakened", "asyncio", "numpy", "malloc", "malloc, 4 threads", "200 threads"]
ORDINARY = {IDLE, BUSY, "wakened", "asyncio", "numpy"}  # that the budgets are for
ATTACH, PAUSE = 5e-3, 1e-3
EVAL_IDLE, EVAL_BUSY = 300e-6, 6e-3
NOISE = 0.01  # that a ratio has on a shared machine


def attach(report, probe, interpreter, rounds):
    """From the write to an agent that answers, and how long the borrowed thread was away."""
    for kind in TARGETS:
        if not victims.can_run(interpreter, kind):
            skip(f"attaching to {kind}", f"{interpreter} has no numpy")
            continue
        took, ready, pause = [], [], []
        with Victim(interpreter, kind) as victim:
            commands = Commands(probe, victim.pid)
            for number in range(rounds + 2):
                begin = time.perf_counter()
                said = fields(commands.attach())
                took.append(time.perf_counter() - begin)
                ready.append(float(said["AgentAttach"]))
                pause.append(float(said["AgentPause"]))
                commands.detach()
            victim.end()
        report.row(f"{interpreter}, {kind}: attach", show(median(took[2:])),
                   f"ready {show(median(ready[2:]))}, pause {show(median(pause[2:]))}; "
                   f"first {show(took[0])}")
        if kind in ORDINARY:
            report.budget(f"attach to ready, {kind}, {interpreter}", median(took[2:]), ATTACH)
            report.budget(f"pause for it, {kind}, {interpreter}", median(pause[2:]), PAUSE)


def first_line(report, probe, interpreter, peers, rounds):
    """A shell's whole command that runs a line in a process that never heard of us; felt: the longest
    round of a busy target meanwhile, which takes 0.1 ms by itself."""
    for kind in IDLE, BUSY:
        with Victim(interpreter, kind) as victim, proc_in_root(interpreter.root):
            mark = interpreter.directory / "mark"
            code = f"open({interpreter.path(mark.name)!r}, 'w').close()"
            echo = ["bash", "-c", 'echo "$1" > "$2"', "bash", code,
                    str(probe.path / str(victim.pid) / "eval")]
            tools = {"probefs": echo}
            tools.update({peer.name: peer.command(victim.target, code) for peer in peers})
            ours = None
            for name, command in tools.items():
                if command is None:
                    continue
                took, felt = _marked(victim, name, command, mark, rounds)
                if name == "probefs":
                    ours = took
                if took:
                    ratio = f", {took / ours:.0f} x ours" if ours and name != "probefs" else ""
                    report.row(f"{interpreter}, {kind}: first line by {name}", show(took),
                               f"felt {show(felt)}{ratio}" if kind == BUSY else ratio[2:])
                if not victim.alive():
                    skip(name, f"it ended the target {victim}")
                    return


def _marked(victim, name, command, mark, rounds):
    """Medians of the seconds until the line has run, and of the longest round meanwhile."""
    took, felt = [], []
    loads = "dlopen" in name  # leaves no mark
    for _ in range(rounds):
        mark.unlink(missing_ok=True)
        victim.report()
        begin = time.perf_counter()
        tool = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env={**os.environ, "DEBUGINFOD_URLS": ""})
        try:
            if not loads:
                eventually(mark.exists, 5, f"{name}'s line")
                took.append(time.perf_counter() - begin)
            said = tool.communicate(timeout=20)[0]
            if loads and not tool.returncode:
                took.append(time.perf_counter() - begin)
        except (AssertionError, subprocess.TimeoutExpired):
            tool.kill()
            said = tool.communicate()[0]
            lines = said.decode(errors="replace").strip().splitlines() or ["its line never ran"]
            skip(name, f"on {victim}: {lines[-1][:100]}")
            break
        if not victim.alive():
            break
        felt.append(victim.report()["slowest"])
        if name == "probefs":
            subprocess.run(["bash", "-c", 'echo detach > "$1"', "bash",
                            command[-1].replace("/eval", "/ctl")], check=True)
    return median(took), median(felt)


def line(report, probe, interpreter, rounds):
    """A line more, with the agent there: the write(2) alone, and a shell's whole command."""
    for kind, limit in (IDLE, EVAL_IDLE), (BUSY, EVAL_BUSY):
        with Victim(interpreter, kind) as victim:
            commands = Commands(probe, victim.pid)
            commands.eval("1")
            fd = os.open(commands.directory / "eval", os.O_WRONLY)
            took = []
            for _ in range(rounds * 5):
                begin = time.perf_counter()
                os.write(fd, b"1\n")
                took.append(time.perf_counter() - begin)
            os.close(fd)
            whole = [timed(["bash", "-c", 'echo 1 > "$1"', "bash",
                            str(commands.directory / "eval")])[0] for _ in range(rounds)]
            nothing = [timed(["bash", "-c", 'echo 1 > "$1"', "bash", "/dev/null"])[0]
                       for _ in range(rounds)]
            commands.detach()
            victim.end()
        slow = statistics.quantiles(took, n=100)[98]
        report.row(f"{interpreter}, {kind}: write(2) to eval", show(median(took)),
                   f"p99 {show(slow)}; bash's whole echo {show(median(whole))}, to /dev/null "
                   f"{show(median(nothing))}")
        report.budget(f"eval, {kind} target, {interpreter}", median(took), limit)


def unused(report, probe, interpreter, turns):
    """What a program's own loops cost with an agent that nobody talks to; on and off in turns, so
    that both see the same machine."""
    script = interpreter.directory / "bench_loops.py"
    shutil.copy(os.path.join(os.path.dirname(__file__), "loops.py"), script)
    with interpreter.run(script.name) as target:
        commands = Commands(probe, target.pid)
        took = {}

        def measure(key):
            target.send("run")
            for word in target.readline(60).split():
                name, seconds = word.split("=")
                took.setdefault(name, {True: [], False: []})[key].append(float(seconds))

        measure(False)
        took.clear()
        for turn in range(turns):
            for attached in (True, False) if turn % 2 else (False, True):
                if attached:
                    commands.eval("1")
                measure(attached)
                if attached:
                    commands.detach()
    ratios = []
    for name, times in took.items():
        # the least is what the loop takes; what is more was the machine's doing
        ratios.append(min(times[True]) / min(times[False]))
        report.row(f"{interpreter}, attached but unused: {name}", f"{ratios[-1]:.3f} x",
                   f"without an agent half of the turns are off by "
                   f"{(median(times[False]) / min(times[False]) - 1) * 100:.1f} % or more")
    mean = statistics.geometric_mean(ratios)
    report.budget(f"attached but unused, all loops, {interpreter}", mean, 1 + NOISE,
                  lambda ratio: f"{ratio:.3f} x")


def measure_agent(report, probe, chosen, args):
    chosen = [interpreter for interpreter in chosen if interpreter.version >= (3, 10)]
    peers = usable_peers(not args.no_peers, RUNNERS)
    print("\n== Attach and detach, again and again")
    for interpreter in chosen:
        attach(report, probe, interpreter, args.rounds)
    print("\n== The first line of Python, from the shell's point of view")
    for interpreter in chosen:
        first_line(report, probe, interpreter, peers, args.rounds // 2)
    print("\n== A further line")
    for interpreter in chosen:
        line(report, probe, interpreter, args.rounds)
    print("\n== An agent that is there, and unused")
    for interpreter in chosen:
        unused(report, probe, interpreter, args.turns * 5)
