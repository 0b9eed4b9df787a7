"""What breakpoints and watchpoints cost the program that they are in: those of probefs, of debugpy, of pdb, and a trace
function of one's own, in the same loops, by turns with and without."""
import contextlib
import pathlib
import shutil
import subprocess
import time

from commands import Commands
from dap import Connected
from interpreters import eventually
from mount import build
from peers import Debugpy
from report import median, show, skip

SCRIPT = "bench_breakpoint_loops.py"
LOOP = 10_000_000   # iterations that nothing but probefs could be asked for
BUDGET = 0.3        # seconds that one turn of a slower tool may take
BURST, REST = 64, 0.3  # hits at a time, and seconds between: below what is limited

NOISE = 0.02  # that a ratio of loops has on a shared machine
UNHIT, OTHER = 1.02, 1.00
CONDITION, LOG = 200, 2000  # ns
WATCH = {"perf": 8000, "ptrace": 20000}  # ns
DICT = 60  # ns
SET, SET_MANY = 1e-3, 15e-3  # s

# what: (mark, loop, condition, whether i and total are logged)
EXPERIMENTS = {
    "unhit, in the hot function": ("unhit", "looped", "", False),
    "in other code": ("elsewhere", "looped", "", False),
    "a condition, false": ("hit", "reached", "i < 0", False),
    "log with two captures": ("hit", "reached", "", True),
}
UNHIT_ONE, OTHER_ONE, CONDITION_ONE, LOG_ONE = EXPERIMENTS


def _nanoseconds(value):
    return "-" if value is None else f"{value:.0f} ns" if value >= 10 else f"{value:.1f} ns"


def _ratio(value):
    return f"{value:.3f} x"


class Loops:
    """The program, under one of its tools."""

    def __init__(self, interpreter, *arguments):
        script = interpreter.directory / SCRIPT
        shutil.copy(pathlib.Path(__file__).with_name("breakpoint_loops.py"), script)
        self.target = interpreter.run(SCRIPT, *arguments, env={"PYDEVD_DISABLE_FILE_VALIDATION": "1"})
        self.pid, self.path = self.target.pid, self.target.path()
        lines = script.read_text().splitlines()
        self.marks = {line.rpartition("# mark: ")[2]: number
                      for number, line in enumerate(lines, 1) if "# mark: " in line}

    def ask(self, command, timeout=120):
        self.target.send(command)
        return self.target.readline(timeout)

    def run(self, loop, count):
        """Nanoseconds of an iteration: by the clock, of the processor."""
        return [float(word) for word in self.ask(f"run {loop} {count}").split()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.target.close()


# --- the tools: set(mark, condition, logged), clear() -------------------------------------------


class Inside:
    """settrace and pdb, which the program does by itself."""

    def __init__(self, loops):
        self.loops = loops

    def set(self, mark, condition, logged):
        said = self.loops.ask(f"log {mark}" if logged else f"set {mark} {condition}")
        assert said == "done", self.loops.target.stderr()

    def clear(self):
        self.loops.ask("clear")


class Editor:
    """debugpy, as an editor uses it."""

    def __init__(self, loops, dap):
        self.loops, self.dap = loops, dap

    def set(self, mark, condition, logged):
        one = {"line": self.loops.marks[mark]}
        one.update({"condition": condition} if condition else {})
        one.update({"logMessage": "{i} {total}"} if logged else {})
        assert self.dap.set(self.loops.path, [one])[0]["verified"]

    def clear(self):
        self.dap.set(self.loops.path, [])


class Ours:
    def __init__(self, loops, commands):
        self.loops, self.commands = loops, commands
        self.file = commands.directory / "breakpoints"

    def write(self, text):
        """Replaces the set. Fails where a line is refused."""
        with open(self.file, "wb", buffering=0) as file:
            file.write(text.encode())

    def set(self, mark, condition, logged):
        captures = " {i, total}" if logged else ""
        self.write(f"log {SCRIPT}:{self.loops.marks[mark]}{captures}{condition and f' if {condition}'}\n")

    def clear(self):
        self.write("\n")


@contextlib.contextmanager
def _with(kind, interpreter, probe):
    """(loops, tool) of a fresh program."""
    if kind == "debugpy":
        peer = Debugpy(interpreter)
        why = peer.install()
        if why:
            raise OSError(why)
        with Loops(interpreter, "debugpy", *peer.inside()) as loops:
            port = loops.target.readline()
            if not port:
                raise OSError((loops.target.stderr().strip().splitlines() or ["it ended"])[-1])
            dap = Connected(int(port))
            try:
                dap.attach(justMyCode=False)
                yield loops, Editor(loops, dap)
            finally:
                dap.close()
    elif kind == "probefs":
        with Loops(interpreter) as loops:
            commands = Commands(probe, loops.pid)
            commands.attach()
            yield loops, Ours(loops, commands)
            commands.detach()
    else:
        with Loops(interpreter, kind) as loops:
            yield loops, Inside(loops)


# --- what is measured ---------------------------------------------------------------------------


def _count(loops, loop, seconds):
    """So many iterations take about that long."""
    begin = time.perf_counter()
    loops.run(loop, 200)
    return max(200, min(LOOP, int(200 * seconds / (time.perf_counter() - begin))))


def _turns(loops, tool, experiment, rounds, whole):
    """(ns without, with) of each turn. whole: the ten million iterations, else as many as there is time for. Of the
    processor where the program's own thread does all of it."""
    mark, loop, condition, logged = experiment
    turns = []
    for _ in range(rounds):
        tool.clear()
        if logged:
            without = loops.run(loop, BURST)[0]
            tool.set(mark, condition, logged)
            loops.run(loop, 1)  # the first one finds the place
            time.sleep(REST)
            turns.append((without, loops.run(loop, BURST)[0]))
            continue
        without = loops.run(loop, LOOP if whole else LOOP // 100)[1]
        tool.set(mark, condition, logged)
        count = LOOP if whole else _count(loops, loop, BUDGET)
        turns.append((without, loops.run(loop, count)[1]))
    tool.clear()
    return turns


def _least(turns):
    """What is more was the machine's doing."""
    return min(off for off, _ in turns), min(on for _, on in turns)


def _compare(report, interpreter, probe, kinds, rounds):
    """{kind: {what: (ns without, with)}}"""
    found = {}
    for kind in kinds:
        try:
            with _with(kind, interpreter, probe) as (loops, tool):
                found[kind] = {what: _least(_turns(loops, tool, experiment, rounds if kind == "probefs" else 3,
                                                   kind == "probefs"))
                               for what, experiment in EXPERIMENTS.items()}
        except (OSError, AssertionError) as error:
            skip(kind, f"breakpoints on {interpreter}: {str(error)[:120]}")
    ours = found.get("probefs")
    for what in EXPERIMENTS:
        for kind, took in found.items():
            off, on = took[what]
            if kind != "probefs":  # some slow it down as soon as they are there
                off = min(other[what][0] for other in found.values())
            more = ""
            if ours and kind != "probefs" and what in (CONDITION_ONE, LOG_ONE):
                more = f"{(on - off) / max(ours[what][1] - ours[what][0], 1):.0f} x ours"
            report.row(f"{interpreter}, {what}: {kind}", f"+ {_nanoseconds(max(on - off, 0))}",
                       f"{on / off:.2f} x without, which takes {_nanoseconds(off)}{more and ', ' + more}")
    return found


def _budgets(report, interpreter, found):
    ours = found.get("probefs")
    if not ours or interpreter.version < (3, 12):
        return  # a trace function costs what it costs
    for what, limit in ((UNHIT_ONE, UNHIT), (OTHER_ONE, OTHER)):
        off, on = ours[what]
        report.budget(f"breakpoint {what}, {interpreter}", on / off, limit + (0 if limit > 1 else NOISE), _ratio)
    for what, limit in ((CONDITION_ONE, CONDITION), (LOG_ONE, LOG)):
        off, on = ours[what]
        report.budget(f"breakpoint, {what}, {interpreter}", on - off, limit, _nanoseconds)
    if "debugpy" in found:
        slower = [found[kind][CONDITION_ONE][1] - found[kind][CONDITION_ONE][0] for kind in ("debugpy", "probefs")]
        report.budget(f"debugpy's condition is so many times slower, at least 50, {interpreter}",
                      -slower[0] / slower[1], -50, lambda x: f"{-x:.0f} x")


def _setting(report, interpreter, probe, rounds):
    """The write(2) that sets one, with few and with many functions in the process."""
    for count, limit in (0, SET), (100_000, SET_MANY):
        with _with("probefs", interpreter, probe) as (loops, tool):
            if count:
                loops.ask(f"functions {count}")
            tool.clear()
            for words, mark in (("a file and a line", "elsewhere"), ("a function", None)):
                location = f"{SCRIPT}:{loops.marks[mark]}" if mark else "elsewhere()"
                took = []
                for number in range(rounds):
                    begin = time.perf_counter()
                    tool.write(f"1: log {location} if {number}\n")
                    took.append(time.perf_counter() - begin)
                what = f"set one, {words}, {count:,} more functions" if count else f"set one, {words}"
                report.row(f"{interpreter}: {what}", show(median(took)))
                if interpreter.version >= (3, 12):
                    report.budget(f"breakpoints: {what}, {interpreter}", median(took), limit)


def _watch(report, interpreter, probe, rounds):
    with _with("probefs", interpreter, probe) as (loops, tool):
        for route, limit in WATCH.items():
            more = _watched(tool, loops, f"log watch cells[3] hw={route} {{i}}\n", "stored", rounds)
            if more is None:
                skip(f"watch by {route}", f"{interpreter}: {_words(tool)}")
                continue
            report.row(f"{interpreter}: a watched store, by {route}", f"+ {_nanoseconds(more)}")
            report.budget(f"watch hit with stack, {route}, {interpreter}", more, limit, _nanoseconds)
        if interpreter.version < (3, 12):
            return
        for loop, words in (("assigned_beside", "another name of a watched dict"),
                            ("assigned", "the name, condition false")):
            more = _watched(tool, loops, "log watch watched if new is None\n", loop, rounds, LOOP // 100)
            if more is not None:
                report.row(f"{interpreter}: a write to {words}", f"+ {_nanoseconds(max(more, 0))}")
                if loop == "assigned_beside":
                    report.budget(f"dict watch, {interpreter}", more, DICT, _nanoseconds)


def _watched_by_gdb(report, interpreter, rounds):
    """The same store, as gdb watches it, which stops the whole process for each."""
    if not shutil.which("gdb"):
        return skip("gdb", "not installed")
    with Loops(interpreter) as loops:
        without = [loops.run("stored", BURST)[0] for _ in range(rounds)]
        watch = f"watch *(long *) {loops.ask('address')}\ncommands\nsilent\ncontinue\nend\ncontinue\n"
        gdb = subprocess.Popen(["gdb", "-q", "-nx", "-p", str(loops.pid)], stdin=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
        try:
            gdb.stdin.write(watch)
            gdb.stdin.flush()
            eventually(lambda: loops.target.state() == "t", 20, "gdb")
            loops.ask("address")  # once it lets it go on
            took = [loops.run("stored", BURST)[0] for _ in range(rounds)]
        finally:
            gdb.kill()
            gdb.wait()
    return report.row(f"{interpreter}: a watched store, by gdb", f"+ {_nanoseconds(min(took) - min(without))}")


def _watched(tool, loops, line, loop, rounds, count=BURST):
    """Nanoseconds more an iteration; None: it was refused, or is not armed."""
    turns = []
    for _ in range(rounds):
        tool.clear()
        without = loops.run(loop, count)[0]
        try:
            tool.write(line)
            eventually(lambda: any(f"# {state}" in _words(tool) for state in ("hw", "dict")), 2, "the watch")
        except (OSError, AssertionError):
            return None
        time.sleep(REST)
        turns.append((without, loops.run(loop, count)[0]))
    tool.clear()
    off, on = _least(turns)
    return on - off


def _words(tool):
    return (tool.file.read_text().strip().splitlines() or [""])[0]


def _trap(report, rounds):
    """The least that a watched store can cost here."""
    said = subprocess.run([str(build() / "tests" / "bench" / "trap"), str(rounds)], capture_output=True, text=True)
    if said.returncode:
        return skip("a debug register's trap", said.stderr.strip()[:120])
    return report.row("a debug register's trap, by perf, whose handler does nothing",
                      _nanoseconds(median(map(float, said.stdout.split()))))


def measure_breakpoints(report, probe, chosen, args):
    print("\n== Breakpoints")
    kinds = ["probefs"] if args.no_peers else ["probefs", "debugpy", "pdb", "settrace"]
    rounds = max(3, args.rounds // 4)
    _trap(report, rounds)
    for interpreter in chosen:
        if interpreter.version < (3, 10):
            continue
        found = _compare(report, interpreter, probe, kinds, rounds)
        _budgets(report, interpreter, found)
        if not args.no_peers:
            _watched_by_gdb(report, interpreter, rounds)
        for measure in _setting, _watch:
            try:
                measure(report, interpreter, probe, rounds)
            except OSError as error:
                skip(f"breakpoints of probefs on {interpreter}", str(error)[:120])
