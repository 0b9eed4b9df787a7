"""The profiler and its peers on programs that know their own shares, and what sampling costs."""
import contextlib
import pathlib
import subprocess
import tempfile
import time

import shares
from mount import build
from peers import PyPI, proc_in_root
from report import median, skip

KINDS = ("python", "calls", "mix", "threads")
MODES = ("cpu", "gil", "nogil", "off", "wall")


# --- who samples: each writes folded stacks of `seconds` of a process ----------------------------


class Ours:
    """The best source there is; or, at a mount whose daemon may not use it, the next one."""

    def __init__(self, probe, name="probefs"):
        self.probe, self.name = probe, name

    def can(self, target):
        return True

    def record(self, target, mode, hertz, seconds):
        directory = self.probe.path / str(target.pid)
        control = directory / "ctl"
        control.write_text(f"profile {mode} {hertz}hz python\n")
        time.sleep(seconds)
        control.write_text("profile off\n")
        return (directory / "profile" / "folded").read_text()


class Command:
    def record(self, target, mode, hertz, seconds):
        with tempfile.TemporaryDirectory(dir=target.interpreter.directory) as made:
            pathlib.Path(made).chmod(0o755)
            out = pathlib.Path(made) / "folded"
            inside = target.interpreter.path(out.relative_to(target.interpreter.directory))
            command = self.command(target, mode, hertz, seconds, out, inside)
            done = subprocess.run(command, capture_output=True, timeout=seconds + 60)
            if done.returncode or not out.exists():
                words = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines() or ["nothing"]
                skip(self.name, f"on {target.interpreter}: {words[-1][:120]}")
                return None
            return out.read_text(errors="replace")


class PySpy(Command):
    def __init__(self, *options):
        self.tool = PyPI("py-spy", "py-spy")
        self.options = options
        self.name = " ".join(["py-spy record", *options])
        self.install = self.tool.install

    def can(self, target):
        return True

    def command(self, target, mode, hertz, seconds, out, inside):
        more = {"gil": ["--gil"], "wall": ["--idle"]}.get(mode, [])
        return [str(self.tool.program), "record", *self.options, *more, "-p", str(target.pid), "-r", str(hertz), "-d",
                str(round(seconds)), "-f", "raw", "-o", str(out)]


class Sampling(Command):
    """CPython 3.15's own, in the target's root."""
    name = "profiling.sampling"

    def can(self, target):
        return target.interpreter.version[:2] == (3, 15)

    def command(self, target, mode, hertz, seconds, out, inside):
        return target.interpreter.command("-m", "profiling.sampling", "attach", "-a", "-r", hertz, "-d",
                                          round(seconds), "--mode", mode, "--collapsed", "-o", inside, target.pid)


class Austin(Command):
    """3.8 to 3.14; its weights are microseconds."""
    name = "austin"

    def __init__(self):
        self.tool = PyPI("austin-dist", "austin")
        self.install = self.tool.install

    def can(self, target):
        return target.interpreter.version < (3, 15)

    def command(self, target, mode, hertz, seconds, out, inside):
        more = ["-c"] if mode == "cpu" else []
        return [str(self.tool.program), "-i", str(1000000 // hertz), *more, "-x", str(round(seconds)), "-p",
                str(target.pid), "-o", str(out)]


OTHERS = [PySpy(), PySpy("--nonblocking"), Sampling(), Austin()]
ABILITIES = {"py-spy record": ("cpu", "gil", "wall"), "py-spy record --nonblocking": ("cpu", "gil", "wall"),
             "profiling.sampling": ("cpu", "gil", "wall"), "austin": ("cpu", "wall")}


def usable(wanted):
    for other in OTHERS if wanted else []:
        why = other.install() if hasattr(other, "install") else None
        if why:
            skip(other.name, why)
        else:
            yield other


# --- truth -----------------------------------------------------------------------------------------


def expected(spent, mode):
    """{function: what a profile in that mode should give it}, of {function: (processor seconds, seconds)}."""
    with_gil = {name: cpu for name, (cpu, _) in spent.items() if name != "in_c_nogil"}
    return {"cpu": {name: cpu for name, (cpu, _) in spent.items()},
            "gil": with_gil,
            "nogil": {name: cpu for name, (cpu, _) in spent.items() if name == "in_c_nogil"},
            # the others wait for nothing: what they lack is a processor
            "off": {name: wall - cpu if name == "asleep" else 0.0 for name, (cpu, wall) in spent.items()},
            "wall": {name: wall for name, (_, wall) in spent.items()}}[mode]


@contextlib.contextmanager
def load(count):
    """So many loops in C beside everything, at the same priority."""
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure_truth(report, samplers, interpreter, args):
    print(f"\n== Shares of processor time, {args.hertz} Hz for {args.profile_seconds} s, worst error in points "
          f"({interpreter}, {args.load} loops beside)")
    for kind in KINDS:
        for sampler in samplers:
            judge(report, sampler, interpreter, kind, "cpu", args)
    print("\n== The other modes")
    for mode in MODES[1:]:
        for sampler in samplers:
            if mode in ABILITIES.get(sampler.name, MODES):
                judge(report, sampler, interpreter, "threads" if mode == "wall" else "mix", mode, args)


def judge(report, sampler, interpreter, kind, mode, args):
    with interpreter.run("shares.py", kind) as target, proc_in_root(interpreter.root):
        if not sampler.can(target):
            return
        time.sleep(0.3)
        shares.begin(target)
        folded = sampler.record(target, mode, args.hertz, args.profile_seconds)
        spent = shares.end(target)
    if folded is None:
        return
    found = shares.judge(folded, expected(spent, mode))
    report.row(f"{kind}, {mode}: {sampler.name}", f"{found.worst:.1f}",
               f"elsewhere {found.elsewhere:.1f} %, impossible {found.impossible:g} of {found.samples:g}")
    if sampler.name == "probefs":
        report.budget(f"{kind}, {mode}: worst error", found.worst, 1.0, lambda points: f"{points:.2f} pp")
        report.budget(f"{kind}, {mode}: impossible stacks", found.impossible, 0, lambda stacks: f"{stacks:g}")


def measure_impossible(report, probe, chosen, args):
    """Of very many samples of the shortest calls: stacks that never were."""
    each = -(-args.stacks // len(chosen))
    print(f"\n== Impossible stacks of {args.stacks}, 9973 Hz")
    for interpreter in chosen:
        with interpreter.run("shares.py", "calls") as target:
            control = probe.path / str(target.pid) / "ctl"
            shares.begin(target)
            control.write_text("profile cpu 9973hz python\n")
            while int(status(probe, target)["Samples"].split()[0]) < each:
                time.sleep(1)
            control.write_text("profile off\n")
            spent = shares.end(target)
            said = status(probe, target)
            folded = (probe.path / str(target.pid) / "profile" / "folded").read_text()
        found = shares.judge(folded, expected(spent, "cpu"))
        report.row(f"{interpreter}: {said['Samples']} samples", f"{found.impossible:g}",
                   f"worst error {found.worst:.2f}, lost {said['Lost']}, torn {said['Torn']}, no stack {said['NoStack']}, "
                   f"source {said['Source']}")
        report.budget(f"impossible stacks, {interpreter}", found.impossible, 0, lambda stacks: f"{stacks:g}")


# --- cost ------------------------------------------------------------------------------------------


def processor_ns(pid):
    """Of all its threads that live."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


def speed(target, seconds):
    """Rounds of a busy victim for each second of its own processor time."""
    def ask():
        target.send("count")
        return int(target.readline().split()[0]), processor_ns(target.pid)

    first, began = ask()
    time.sleep(seconds)
    last, ended = ask()
    return (last - first) / (ended - began)


def loss(target, turns, seconds, begin, end):
    """Medians of the share of work lost for each second of processor time between begin() and end()."""
    losses = []
    for _ in range(turns):
        before = speed(target, seconds)
        begin()
        during = speed(target, seconds)
        end()
        losses.append(1 - during / ((before + speed(target, seconds)) / 2))
    return median(losses)


def empty_event(target, hertz):
    """A perf event that nobody reads: what this machine's timer interrupt itself costs."""
    return subprocess.Popen([str(build() / "tests" / "bench" / "empty_event"), str(target.pid), str(hertz)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def measure_cost(report, probe, interpreter, start, args):
    print(f"\n== What sampling costs the target: work a second of its own processor time ({interpreter})")
    limits = {97: 0.003, 997: 0.05}
    for threads in 1, 100:
        with start(interpreter, threads, 30, "busy") as target:
            control = probe.path / str(target.pid) / "ctl"
            for hertz in 97, 997, 9973:
                event = []

                def begin():
                    event.append(empty_event(target, hertz))
                    event[0].stdout.readline()

                def end():
                    event.pop().communicate()

                bare = loss(target, args.turns, 1.0, begin, end)
                ours = loss(target, args.turns, 1.0, lambda: control.write_text(f"profile cpu {hertz}hz python\n"),
                            lambda: control.write_text("profile off\n"))
                told = status(probe, target).get("TargetCost", "")
                report.row(f"{threads} x 30, {hertz} Hz: an empty event", f"{bare * 100:.2f} %")
                report.row(f"{threads} x 30, {hertz} Hz: probefs", f"{ours * 100:.2f} %", f"status: {told}")
                if hertz in limits:
                    report.budget(f"cost to the target, {threads} x 30, {hertz} Hz", ours, limits[hertz],
                                  lambda share: f"{share * 100:.2f} %")


def status(probe, target):
    text = (probe.path / str(target.pid) / "profile" / "status").read_text()
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def measure_daemon(report, probe, interpreter, start, args):
    print(f"\n== The daemon's own processor time a sample ({interpreter})")
    for threads in 1, 10, 100:
        with start(interpreter, threads, 30, "busy") as target:
            control = probe.path / str(target.pid) / "ctl"
            control.write_text("profile cpu 9973hz python\n")
            time.sleep(1)
            before, first = processor_ns(probe.pid), int(status(probe, target)["Samples"].split()[0])
            time.sleep(3)
            used = processor_ns(probe.pid) - before
            samples = int(status(probe, target)["Samples"].split()[0]) - first
            control.write_text("profile off\n")
        each = used / max(samples, 1) / 1e9
        report.row(f"{threads} x 30, {samples} samples in 3 s", f"{each * 1e6:.2f} us")
        report.budget(f"the daemon, a sample, {threads} x 30", each, 1e-6, lambda seconds: f"{seconds * 1e6:.2f} us")


def measure_profile(report, probe, chosen, args, start):
    samplers = [Ours(probe), *usable(not args.no_peers)]
    for interpreter in chosen:
        with load(args.load):
            measure_truth(report, samplers, interpreter, args)
    if args.stacks:
        measure_impossible(report, probe, chosen, args)
    newest = chosen[-1]
    measure_cost(report, probe, newest, start, args)
    measure_daemon(report, probe, newest, start, args)
