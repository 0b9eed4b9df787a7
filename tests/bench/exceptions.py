"""What it costs the program that its exceptions are recorded: raised and caught in one function, and for each frame
that one leaves, by turns with and without."""
import textwrap

from commands import Commands
from report import median

RAISE = 150  # ns

PROGRAM = textwrap.dedent("""
    import sys, time

    def caught(n):
        for _ in range(n):
            try:
                raise ValueError("x")
            except ValueError:
                pass

    def deep(depth):
        if depth:
            return deep(depth - 1)
        raise ValueError("x")

    def unwound(n):
        for _ in range(n // 10):
            try:
                deep(9)
            except ValueError:
                pass

    def computed(n):
        total = 0
        for i in range(n * 10):
            total += i & 7

    def nanoseconds(function, n=2000):
        begin = time.perf_counter_ns()
        function(n)
        return (time.perf_counter_ns() - begin) / n

    print("ready", flush=True)
    for line in sys.stdin:
        function = globals()[line.strip()]
        print(min(nanoseconds(function) for _ in range(25)), flush=True)
    """)


def _nanoseconds(value):
    return f"{value:.0f} ns"


def _ask(target, what):
    target.send(what)
    return float(target.readline())


def _by_turns(target, commands, what, rounds):
    """(nanoseconds without, with) of each turn."""
    turns = []
    for _ in range(rounds):
        commands.run("ctl", "record exceptions off")
        without = _ask(target, what)
        commands.run("ctl", "record exceptions on")
        turns.append((without, _ask(target, what)))
    return turns


def measure_exceptions(report, probe, chosen, rounds):
    print("\n== Recording exceptions")
    for interpreter in chosen:
        if interpreter.version < (3, 10):
            continue
        with interpreter.run_source(PROGRAM, name="bench_exceptions.py") as target:
            commands = Commands(probe, target.pid)
            commands.attach()
            for what, words in (("caught", "a raise and its except"), ("unwound", "each of 10 frames that one leaves"),
                                ("computed", "10 additions")):
                turns = _by_turns(target, commands, what, rounds)
                more = median([on - off for off, on in turns])
                report.row(f"{interpreter}: {words}", f"+ {_nanoseconds(more)}",
                           f"without {_nanoseconds(min(off for off, _ in turns))}, "
                           f"with {_nanoseconds(min(on for _, on in turns))}")
                if what == "caught" and interpreter.version >= (3, 12):
                    report.budget(f"record a raise, {interpreter}", more, RAISE, _nanoseconds)
