"""What recording costs the program, and reading what was recorded."""
import collections
import subprocess

from exceptions import measure_exceptions
from mount import build
from report import median
from scan import measure_scan
from spans import measure_spans
from steps import measure_steps

# What tests/bench/append.c prints: the budget [ns], and words.
APPENDED = {
    "spans": (60, "a span, into a ring of 4 MiB"),
    "completed": (None, "a span, and its duration later"),
    "large": (60, "a span, into a ring of 160 MiB"),
    "gc": (60, "a run of the garbage collector"),
    "clock": (None, "the clock, once"),
    "scan": (None, "one of a million spans that the daemon reads"),
}


def nanoseconds(value):
    return f"{value:.1f} ns"


def measure_append(report, rounds):
    print("\n== Recording: a row, written and read in C")
    said = subprocess.run([str(build() / "tests" / "bench" / "append"), str(rounds)],
                          capture_output=True, check=True).stdout.decode()
    took = collections.defaultdict(list)
    for line in said.splitlines():
        name, value = line.split()
        took[name].append(float(value))
    for name, (limit, words) in APPENDED.items():
        report.row(f"a row: {words}", nanoseconds(median(took[name])))
        if limit:
            report.budget(f"append {words}", median(took[name]), limit, nanoseconds)


def measure_record(report, probe, chosen, args, start):
    measure_append(report, args.rounds)
    measure_spans(report, probe, chosen, args)
    measure_exceptions(report, probe, chosen, args.rounds)
    measure_steps(report, probe, args)
    measure_scan(report, probe, chosen, args)
