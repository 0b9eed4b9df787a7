"""What it costs that others read, and run statements (-o contain): two mounts side by side, in turns."""
import contextlib
import os
import re
import subprocess
import time

from ask import opened
from mount import Probe
from report import median, show, skip

DEPTH = 30
USERS = 30
FIRST_USER = 61000
TURNS = 20
REST = 3  # seconds: what reads gives back what it took for that one second after the last question
SLEEPS = "print('ready', flush=True); input()"


@contextlib.contextmanager
def users(interpreter):
    """A process of each of so many users."""
    started = []
    try:
        for number in range(FIRST_USER, FIRST_USER + USERS):
            started.append(subprocess.Popen(
                [*interpreter.command(), "-c", SLEEPS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/",
                user=number, group=number, extra_groups=[]))
        for process in started:
            assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


def listed(path, rounds):
    """Median seconds of reading a directory's names."""
    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        os.listdir(path)
        took.append(time.perf_counter() - begin)
    return median(took)


def pair(report, mounts, words, limit, file, rounds, measure=opened, *more):
    """The best of the medians of each, of many short turns, which a busy machine disturbs least."""
    some = max(rounds * 5 // TURNS, 3)
    took = [[measure(mount.path / file, some, *more) for mount in mounts] for _ in range(TURNS)]
    no, yes = (min(times) for times in zip(*took))
    report.row(words, show(no), f"contained {show(yes)}, {yes / no:.2f} x")
    if limit:
        report.budget(f"contained, {words}", yes / no, limit, lambda x: f"{x:.2f} x")


def private(pid):
    """Bytes of memory that are its own alone."""
    text = open(f"/proc/{pid}/smaps_rollup").read()
    return sum(int(size) for size in re.findall(r"Private_\w+: +(\d+) kB", text)) << 10


def measure_contained(report, chosen, args, start):
    print("\n== -o contain=no and yes, the best of some medians of open + read + close")
    if os.geteuid():
        skip("-o contain", "only root can take on the rights of others")
        return
    interpreter, rounds = chosen[0], args.rounds
    with Probe("allow_other", "contain=no") as no, Probe("allow_other", "contain=yes") as yes:
        mounts = no, yes
        for threads in 1, 10, 100:
            with start(interpreter, threads, DEPTH) as target:
                for file in "status", "backtrace":
                    pair(report, mounts, f"{threads} x {DEPTH}: {file}", 1.2, f"{target.pid}/{file}", rounds * 2)
                if threads == 10:
                    for sql in "SELECT 1", "SELECT * FROM backtrace":
                        pair(report, mounts, f"{threads} x {DEPTH}: {sql}", None, f"{target.pid}/query", rounds, opened,
                             sql)
                if threads == 100:
                    used = max(private(pid) for pid in yes.owners())
                    time.sleep(REST)
                    memory = max(private(pid) for pid in yes.owners())
        report.row("private memory of what reads, 100 threads", f"{memory / 1e6:.1f} MB",
                   f"while it reads {used / 1e6:.1f} MB")
        report.budget("contained, private memory of what reads, at rest", memory / 1e6, 5, lambda x: f"{x:.1f} MB")
        with users(interpreter):
            for mount, words in zip(mounts, ("", ", contained")):
                report.row(f"{USERS} users: first ls{words}", show(listed(mount.path, 1)))
            pair(report, mounts, f"{USERS} users: ls", 2, "", rounds, listed)
            pair(report, mounts, f"{USERS} users: all/backtrace", None, "all/backtrace", rounds)
            pair(report, mounts, f"{USERS} users: all/query", 1.3, "all/query", rounds, opened,
                 "SELECT count(*) FROM threads")
