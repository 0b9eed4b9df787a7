"""The profiler and its peers on programs that know their own shares, and what sampling costs."""
import contextlib
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import browser
import shares
from interpreters import eventually
from mount import REPOSITORY, Probe, build
from peers import PyPI, proc_in_root
from report import median, show, skip

KINDS = ("python", "calls", "mix", "threads")
ENOUGH = 10000  # samples, for a point of error
PROCESSES = 30  # that do nothing, sampled all the time
# a daemon that has to read from outside
WITHOUT = [REPOSITORY / "tests" / "seccomp-exec", "EPERM", "bpf,perf_event_open"]
SHORT = """
import sys, threading, time
print("ready", flush=True)
for line in sys.stdin:
    done = 0
    def short():
        global done
        done += 1
    begun = time.perf_counter()
    for _ in range(100):
        some = [threading.Thread(target=short) for _ in range(100)]
        for thread in some:
            thread.start()
        for thread in some:
            thread.join()
    print(done, time.perf_counter() - begun, flush=True)
"""
PERIODS = 5  # of a sampler, that one piece of work takes
PIECES = 40  # that are measured in a row, at least
LATE = 20  # seconds that a tool may need to begin and to write


# --- who samples: each writes folded stacks of `seconds` of a process ----------------------------


class Ours:
    """The best source there is; or, at a mount whose daemon may not use it, the next one; or the one that is asked
    for."""

    def __init__(self, probe, name="probefs", source="bpf", words=""):
        self.probe, self.name, self.source, self.words = probe, name, source, words

    def can(self, target):
        return self.source != "inside" or target.interpreter.version >= (3, 10)

    def record(self, target, mode, hertz, seconds):
        directory = self.probe.path / str(target.pid)
        control = directory / "ctl"
        try:
            control.write_text(f"profile {mode} {hertz}hz python {self.words}\n")
        except OSError as error:
            skip(self.name, f"on {target.interpreter}: {error.strerror}")
            return None
        time.sleep(seconds)
        control.write_text("profile off\n")
        source = status(self.probe, target)["Source"]
        if source != self.source:
            skip(self.name, f"on {target.interpreter}: its source was {source}")
            return None
        return (directory / "profile" / "folded").read_text()

    def samples(self, target):
        return int(status(self.probe, target)["Samples"])


class Command:
    def begin(self, target, mode, hertz, seconds, directory):
        """Starts it for so long. It writes into a directory in the target's root."""
        out = pathlib.Path(directory) / "folded"
        inside = target.interpreter.path(out.relative_to(target.interpreter.directory))
        return subprocess.Popen(self.command(target, mode, hertz, seconds, out, inside), stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def record(self, target, mode, hertz, seconds):
        with tempfile.TemporaryDirectory(dir=target.interpreter.directory) as made:
            pathlib.Path(made).chmod(0o755)
            out = pathlib.Path(made) / "folded"
            inside = target.interpreter.path(out.relative_to(target.interpreter.directory))
            command = self.command(target, mode, hertz, seconds, out, inside)
            try:
                done = subprocess.run(command, capture_output=True, timeout=seconds + LATE)
            except subprocess.TimeoutExpired:
                skip(self.name, f"on {target.interpreter}: not ready {LATE} s after it was to be")
                return None
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
ABILITIES = {"probefs inside": ("cpu", "gil"), "probefs timer": ("cpu", "gil", "wall"),
             "py-spy record": ("cpu", "gil", "wall"), "py-spy record --nonblocking": ("cpu", "gil", "wall"),
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
    return {"cpu": {name: cpu for name, (cpu, _) in spent.items()},
            "gil": {name: cpu for name, (cpu, _) in spent.items() if name != "in_c_nogil"},
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


def measure_truth(report, samplers, interpreter, loops, newest, args):
    print(f"\n== Shares of processor time, {args.hertz} Hz for {args.profile_seconds:g} s: the worst error of a "
          f"function in points, "
          f"and what a sleeping one got ({interpreter}, {loops} loops beside)")
    for kind in ("python", "threads") if loops else KINDS:
        for sampler in samplers:
            judge(report, sampler, interpreter, kind, "cpu", loops, args)
    if not newest or loops:
        return
    print("\n== The other modes")
    for mode in "gil", "wall":
        for sampler in samplers:
            if mode in ABILITIES.get(sampler.name, ("gil", "wall")):
                judge(report, sampler, interpreter, "threads" if mode == "wall" else "mix", mode, loops, args)


def judge(report, sampler, interpreter, kind, mode, loops, args):
    with interpreter.run("shares.py", kind) as target, proc_in_root(interpreter.root):
        if not sampler.can(target):
            return
        time.sleep(0.3)
        shares.begin(target)
        folded = sampler.record(target, mode, args.hertz, args.profile_seconds)
        spent = shares.end(target)
        samples = sampler.samples(target) if isinstance(sampler, Ours) and folded is not None else 0
    if folded is None:
        return
    found = shares.judge(folded, expected(spent, mode))
    asleep = f", asleep {found.errors['asleep']:+.1f}" if "asleep" in found.errors else ""
    # ours are microseconds, and austin's; how many they were says its status
    report.row(f"{kind}, {mode}: {sampler.name}", f"{found.worst:.1f}",
               f"elsewhere {found.elsewhere:.1f} %, impossible {100 * found.impossible / max(found.samples, 1):.3f} "
               f"%{asleep}" +
               (f", {samples} samples" if samples else ""))
    if sampler.name == "probefs":
        report.budget(f"{interpreter}, {loops} loops: {kind}, {mode}: impossible", found.impossible, 0,
                      lambda stacks: f"{stacks:g}")


def quanta(directory):
    """Samples of processor time at 9973 Hz: there are those of waits, too."""
    return sum(count for _, count
               in shares.stacks((directory / "profile" / "modes" / "cpu" / "folded").read_text())) * 9973e-6


def measure_points(report, probe, interpreter, loops):
    """Of probefs alone, with as many samples as a point of error takes, and seconds where a share says nothing."""
    print(f"\n== With {ENOUGH} samples, 9973 Hz ({interpreter}, {loops} loops beside)")
    for kind in KINDS:
        modes = ("cpu", "gil", "wall") if kind == "mix" else ("cpu",)
        with interpreter.run("shares.py", kind) as target:
            directory = probe.path / str(target.pid)
            time.sleep(0.3)
            shares.hold(target)
            (directory / "ctl").write_text(f"profile {modes[-1]} 9973hz python\nprofile clear\n")
            shares.begin(target)
            while quanta(directory) < ENOUGH:
                time.sleep(0.2)
            shares.hold(target)
            (directory / "ctl").write_text("profile off\n")
            spent = shares.end(target)
            said = status(probe, target)
            by_mode = {mode: (directory / "profile" / "modes" / mode / "folded").read_text()
                       for mode in (*modes, "nogil", "off")}
            taken = quanta(directory)
        for mode in modes:
            found = shares.judge(by_mode[mode], expected(spent, mode))
            report.row(f"{interpreter}: {kind}, {mode}", f"{found.worst:.2f}",
                       f"points, {taken:.0f} quanta of processor time among {said['Samples']} samples, impossible "
                       f"{found.impossible:g}, lost {said['Lost']}, torn {said['Torn']}, source {said['Source']}")
            report.budget(f"{interpreter}, {loops} loops: {kind}, {mode}: worst error", found.worst, 1.0,
                          lambda points: f"{points:.2f} pp")
        if kind != "mix":
            continue
        for mode, name, truth in (("nogil", "in_c_nogil", spent["in_c_nogil"][0]),
                                  ("off", "asleep", spent["asleep"][1] - spent["asleep"][0])):
            seconds = sum(count for stack, count in shares.stacks(by_mode[mode])
                          if any(frame.startswith(name + " ") for frame in stack)) / 1e6
            report.row(f"{interpreter}: {kind}, {mode}, seconds", f"{seconds:.3f}", f"by its own clocks {truth:.3f}")


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
                   f"worst error {found.worst:.2f}, lost {said['Lost']}, torn {said['Torn']}, no stack "
                   f"{said['NoStack']}, "
                   f"source {said['Source']}")
        report.budget(f"impossible stacks, {interpreter}", found.impossible, 0, lambda stacks: f"{stacks:g}")


# --- cost ------------------------------------------------------------------------------------------


def processor_ns(pid):
    """Of all its threads that live."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir())


def pieces(target, rounds, seconds):
    """How long each of so many rounds took a busy victim: [ns of its processor time, ns by the clock]."""
    target.send(f"pieces {rounds}")
    target.readline()
    time.sleep(seconds)
    target.send("took")
    return [tuple(map(int, each.split(","))) for each in target.readline().split()]


def piece_of(target, hertz):
    """Rounds that take five periods, so that none of them is without a sample, and seconds for enough of them."""
    usual = median([worked for worked, _ in pieces(target, 100, 0.3)]) / 100
    return max(round(PERIODS / hertz * 1e9 / usual), 1), max(PIECES * PERIODS / hertz, 0.3)


def quickest(took):
    """Of the pieces those that nothing else disturbed: what shares a core with it costs it a tenth and more, now and
    then."""
    return [sorted(column)[len(column) // 10] for column in zip(*took)]


def loss(target, hertz, turns, begin, end):
    """The share of work that is lost between begin() and end(): of its processor time, and by the clock; of how many
    pieces."""
    rounds, seconds = piece_of(target, hertz)
    without, within = [], []
    for _ in range(turns):
        without += pieces(target, rounds, seconds)
        begin()
        within += pieces(target, rounds, seconds)
        end()
    return [1 - before / during for before, during in zip(quickest(without), quickest(within))] + [len(within)]


def empty_event(target, hertz):
    """A perf event that nobody reads: what this machine's timer interrupt itself costs."""
    return subprocess.Popen([str(build() / "tests" / "bench" / "empty_event"), str(target.pid), str(hertz)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def measure_cost(report, probe, others, interpreter, start, loops, args):
    print(f"\n== What sampling costs the target: work lost of its processor time, and of the time by the clock "
          f"({interpreter}, "
          f"{loops} loops beside)")
    limits, turns = {97: 0.003, 997: 0.05}, args.turns * 4
    for threads in (1,) if loops else (1, 100):
        with start(interpreter, threads, 30, "busy") as target, proc_in_root(interpreter.root):
            control = probe.path / str(target.pid) / "ctl"
            for hertz in (997,) if loops else (97, 997, 9973):
                what = f"{threads} x 30, {hertz} Hz: "
                event = []

                def begin():
                    event.append(empty_event(target, hertz))
                    event[0].stdout.readline()

                def end():
                    event.pop().communicate()

                bare = loss(target, hertz, turns, begin, end)
                ours = loss(target, hertz, turns, lambda: control.write_text(f"profile cpu {hertz}hz python\n"),
                            lambda: control.write_text("profile off\n"))
                report.row(what + "an empty event", *lost(bare))
                told = status(probe, target).get("TargetCost", "")
                percent, clock = lost(ours)
                report.row(what + "probefs", percent, f"{clock}; status: {told}")
                if hertz in limits and not loops:
                    report.budget(f"cost to the target, {threads} x 30, {hertz} Hz", ours[0], limits[hertz],
                                  lambda share: f"{share * 100:.2f} %")
                for other in others if hertz == 997 else []:
                    if other.can(target):
                        report.row(what + other.name, *lost(loss_by(other, target, hertz)))


def lost(losses):
    return f"{losses[0] * 100:.2f} %", f"{losses[1] * 100:.1f} % by the clock, {losses[2]} pieces"


def loss_by(other, target, hertz):
    """That of a command, which takes some time to begin."""
    rounds, _ = piece_of(target, hertz)
    with tempfile.TemporaryDirectory(dir=target.interpreter.directory) as made:
        pathlib.Path(made).chmod(0o755)
        without = pieces(target, rounds, 1.0)
        command = other.begin(target, "cpu", hertz, 60, made)
        time.sleep(2)
        within = pieces(target, rounds, 4.0)
        command.send_signal(signal.SIGINT)  # what it found isn't asked for
        try:
            command.wait(10)
        except subprocess.TimeoutExpired:
            command.kill()
            command.wait()
        without += pieces(target, rounds, 3.0)
    return [1 - before / during for before, during in zip(quickest(without), quickest(within))] + [len(within)]


def status(probe, target):
    text = (probe.path / str(target.pid) / "profile" / "status").read_text()
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def measure_daemon(report, probe, interpreter, start, args):
    """A sample costs what reading it does, and a part of the reader's coming: that is per second, however few there
    are."""
    print(f"\n== The daemon's own processor time ({interpreter})")
    for threads, hertz in (1, 19), (1, 97), (1, 997), (1, 9973), (10, 9973), (100, 9973):
        seconds = 3 if hertz > 100 else 10
        with start(interpreter, threads, 30, "busy") as target:
            control = probe.path / str(target.pid) / "ctl"
            control.write_text(f"profile cpu {hertz}hz python\n")
            time.sleep(2)
            first, before = int(status(probe, target)["Samples"]), processor_ns(probe.pid)
            time.sleep(seconds)
            used = processor_ns(probe.pid) - before
            samples = int(status(probe, target)["Samples"]) - first
            control.write_text("profile off\n")
        each = used / max(samples, 1) / 1e9
        report.row(f"{threads} x 30, {hertz} Hz", f"{each * 1e6:.2f} us",
                   f"a sample, {samples} in {seconds} s; {100 * used / seconds / 1e9:.3f} % of a processor")
        if hertz == 9973:
            report.budget(f"the daemon, a sample, {threads} x 30, {hertz} Hz", each, 1e-6,
                          lambda seconds: f"{seconds * 1e6:.2f} us")


def measure_idle(report, interpreter):
    with contextlib.ExitStack() as stack:
        for _ in range(PROCESSES):
            stack.enter_context(interpreter.run_source("import sys; print('ready', flush=True); sys.stdin.read()"))
        used = []
        for options in (), ("profile=cpu:19hz",):
            with Probe(*options) as own:
                eventually(lambda: len([name for name in own.path.iterdir() if name.name.isdigit()]) >= PROCESSES,
                           what="all of them")
                time.sleep(5)
                before = processor_ns(own.pid)
                time.sleep(10)
                used.append(processor_ns(own.pid) - before)
    report.row(f"{PROCESSES} idle processes, -o profile=cpu:19hz", f"{(used[1] - used[0]) / 1e8:.3f} %",
               f"of a processor in all, beside {used[0] / 1e8:.3f} % without it")


def measure_short(report, probe, interpreter):
    print(f"\n== Threads that live for a moment, 10,000 of them ({interpreter})")
    with interpreter.run_source(SHORT) as target:
        control = probe.path / str(target.pid) / "ctl"
        for line in "off", "cpu 997hz", "wall 997hz":
            control.write_text(f"profile {line}\n")
            target.send("")
            done, seconds = map(float, target.readline(120).split())
            said = status(probe, target)
            report.row(f"profile {line}", f"{done / seconds:.0f}", "a second" + (
                f"; {said['Samples']} samples, lost {said['Lost']}" if line != "off" else ""))
        control.write_text("profile off\n")
        report.budget("short threads a second, at least 2,000", -done / seconds, -2000, lambda rate: f"{-rate:.0f}")


# --- memory ----------------------------------------------------------------------------------------


def measure_allocations(report, probe, interpreter, peers, args):
    print("\n== What sampling allocations costs: ns of object(), bytes(100) and a small structure, made and freed")
    script = interpreter.directory / "allocations.py"
    shutil.copy(pathlib.Path(__file__).with_name(script.name), script)

    def ask(target, line="measure"):
        target.send(line)
        return [float(word) for word in target.readline().split()]

    def told(what, took, base):
        report.row(what, " ".join(f"{ns:.0f}" for ns in took),
                   ", ".join(f"{100 * (now / before - 1):+.0f} %" for now, before in zip(took, base)))

    with interpreter.run(script.name) as target:
        control = probe.path / str(target.pid) / "ctl"
        base = ask(target)
        told(f"{interpreter}", base, base)
        for line in "heap sites on", "heap sites on 64K":
            control.write_text(line + "\n")
            told(line, ask(target), base)
            control.write_text("heap sites off\n")
        told("off again", ask(target), base)
        for line in "tracemalloc 1", "tracemalloc 30":
            told(line, ask(target, line), base)
    memray = PyPI("memray", "memray")
    why = memray.install() if peers else "no peers are wanted"
    if why:
        skip("memray", why)
        return
    python = memray.environment / "bin" / "python3"
    with tempfile.TemporaryDirectory() as made:
        for name, options in (("", None), ("memray run", []),
                              ("memray run --trace-python-allocators", ["--trace-python-allocators"])):
            run = [] if options is None else ["-m", "memray", "run", "-q", "-o", f"{made}/{len(options)}", *options]
            done = subprocess.run([str(python), *run, str(script)], input="measure\n", capture_output=True, text=True)
            took = [line.split() for line in done.stdout.splitlines() if re.fullmatch(r"[\d.]+ [\d.]+ [\d.]+", line)]
            if not took:
                skip("memray", (done.stderr.strip().splitlines() or ["it printed nothing"])[-1][:120])
                return
            took = [float(word) for word in took[0]]
            base = took if options is None else base
            told(name or "the Python that memray is installed for", took, base)


def measure_census(report, probe, interpreter):
    print("\n== The census of the heap, from outside")
    with interpreter.run("heap.py", "1000000", "2") as target:
        census = probe.path / str(target.pid) / "heap" / "census"
        for what in "the first, which looks for the types", "the next", "one more":
            begun = time.perf_counter()
            text = census.read_text()
            took = time.perf_counter() - begun
            objects = sum(int(line.split(" ")[0]) for line in text.splitlines() if not line.startswith("#"))
            report.row(f"{interpreter}: {what}", show(took),
                       f"{objects} objects, {objects / took / 1e6:.1f} million a second")


# --- the page --------------------------------------------------------------------------------------


def measure_page(report, probe, interpreter):
    print("\n== A flame graph of 50,000 nodes")
    with interpreter.run("wide.py") as target:
        directory = probe.path / str(target.pid)
        (directory / "ctl").write_text("profile cpu 9973hz python\n")
        eventually(lambda: int(status(probe, target).get("Stacks", "0").split()[0]) > 60000, what="60,000 nodes")
        (directory / "ctl").write_text("profile off\n")
        begun = time.perf_counter()
        page = (directory / "profile" / "flamegraph.html").read_bytes()
        report.row("reading it", show(time.perf_counter() - begun), f"{len(page) / 1e6:.1f} MB")
    if not browser.PROGRAM:
        skip("the flame graph", "chromium is not installed")
        return
    shown = browser.Browser()
    try:
        with tempfile.NamedTemporaryFile(suffix=".html") as file:
            file.write(page)
            file.flush()
            opened = []
            for _ in range(3):
                shown.open("about:blank")
                shown.open(f"file://{file.name}")
                shown.until("document.body?.dataset.ready", "the flame graph")
                opened.append(shown.run("new Promise(r => requestAnimationFrame"
                                        "(() => setTimeout(() => r(performance.now()))))") / 1e3)
            took = median(opened)
            report.row("until it is drawn", show(took), f"{shown.run('document.body.dataset.frames')} nodes")
            report.budget("a flame graph of 50,000 nodes is drawn", took, 1.0)
    finally:
        shown.close()


def measure_profile(report, probe, chosen, args, start):
    others = list(usable(not args.no_peers))
    newest = chosen[-1]
    with Probe(within=WITHOUT) as outside:
        ours = [Ours(probe), Ours(probe, "probefs inside", "inside", "inside"), Ours(outside, "probefs timer", "timer")]
        for loops in args.load:
            with load(loops):
                for interpreter in [newest] if loops and not args.interpreters else chosen:
                    measure_points(report, probe, interpreter, loops)
                    measure_truth(report, [*ours, *others], interpreter, loops, interpreter is newest, args)
                measure_cost(report, probe, others, newest, start, loops, args)
    if args.stacks:
        measure_impossible(report, probe, chosen, args)
    measure_daemon(report, probe, newest, start, args)
    measure_idle(report, newest)
    measure_short(report, probe, newest)
    measure_allocations(report, probe, newest, not args.no_peers, args)
    measure_census(report, probe, newest)
    measure_page(report, probe, newest)
