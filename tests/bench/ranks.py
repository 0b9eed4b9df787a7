"""What a distributed job is asked for: its ranks at once, its collectives and tensors, and many hosts."""
import os
import pathlib
import shutil
import statistics
import time

import interpreters as machine
from commands import Commands
from hosts import Hosts
from mount import Probe
from report import median, show, skip
from sql import reply

WORLD = 64
BACKTRACE = 0.1          # s
SLOWEST = 2.0            # times the slowest of them
COLLECTIVE = 2e-6        # s that recording adds to one
SHAPE, VALUES = 10e-6, 1e-3  # s of the daemon for a tensor, and for a MB of values
TRAP = 3e-6              # s that watching a tensor adds to watching its counter's address
ACROSS = 1.2             # times `clush true`
HOSTS, LOCAL = 16, 16

SLOW = "__import__('time').sleep(int(__import__('os').environ['RANK']) / 630) or 1"  # seconds: 0 to 0.1
TENSORS, CALLS = 20000, 2000
CHANGES = 200            # that a watchpoint's queue has room for: more of them are dropped, which takes no time
SETTLED = 0.1            # s until the daemon has armed what is to be watched, and disarmed what was
TRIES = 20               # of so long
TURNS = 3                # as many of what takes a moment as there are rounds of others: the machine drifts
JOB = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999", "WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD)}


def ratio(value):
    return f"{value:.2f} x"


def nanoseconds(value):
    return f"{value * 1e9:.0f} ns" if abs(value) < 1e-6 else f"{value * 1e6:.2f} us"


def start(interpreter, *args, **options):
    script = interpreter.directory / "bench_rank_loops.py"
    if not script.exists():
        shutil.copy(pathlib.Path(__file__).with_name("rank_loops.py"), script)
    return interpreter.run(script.name, *args, **options)


def timed(function, *args):
    begun = time.perf_counter()
    function(*args)
    return time.perf_counter() - begun


def cpu(pid):
    """Seconds that it had a processor for, in steps of 10 ms."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_all(report, probe, interpreter, rounds):
    """64 ranks on this host: their stacks once, and a line in all of them."""
    targets = [start(interpreter, "ranks", env={**JOB, "RANK": str(rank), "LOCAL_RANK": str(rank)}, ready=False)
               for rank in range(WORLD)]
    for target in targets:
        target.expect("ready")
    name = "jobs/127.0.0.1:29999"
    with Probe() as fresh:
        report.row(f"{WORLD} ranks, {4 * WORLD} threads: backtrace, of a daemon that has just begun",
                   show(timed((fresh.path / name / "backtrace").read_bytes)))
    job = probe.path / name
    took = [timed((job / "backtrace").read_bytes) for _ in range(2 * rounds)]
    report.row(f"{WORLD} ranks, {4 * WORLD} threads: backtrace", show(median(took)), f"first {show(took[0])}")
    report.budget(f"backtrace of {WORLD} ranks", median(took), BACKTRACE)
    report.row(f"{WORLD} ranks: eval, with {WORLD} attaches", show(timed(reply, job / "eval", "1\n")))
    for code, words in ("1", "a line"), (SLOW, "one that takes 0 to 100 ms"):
        alone, together = [], []
        for _ in range(rounds):
            alone.append([timed(reply, probe.path / str(target.pid) / "eval", f"{code}\n") for target in targets])
            together.append(timed(reply, job / "eval", f"{code}\n"))
        slowest, one_by_one = median([max(took) for took in alone]), median([sum(took) for took in alone])
        report.row(f"{WORLD} ranks: eval of {words}", show(median(together)),
                   f"one after the other {show(one_by_one)}, the slowest of them {show(slowest)}")
    report.budget(f"eval in {WORLD} ranks, by the slowest", median(together) / slowest, SLOWEST, ratio)
    for target in targets:
        target.close()


class Torch:
    """A rank that has PyTorch, or None of it."""

    def __init__(self, probe, interpreter):
        self.target = start(interpreter, ready=False)
        self.usable = self.target.readline(120) == "ready"
        self.commands = Commands(probe, self.target.pid)
        self.daemon = probe.process.pid

    def ask(self, expression):
        self.target.send(expression)
        return float(self.target.readline(300))

    def daemon_takes(self, sql):
        """Seconds of the daemon's for one statement."""
        self.commands.run("query", sql)
        begun, rounds = cpu(self.daemon), 0
        while cpu(self.daemon) - begun < 1 and rounds < 200:
            self.commands.run("query", sql)
            rounds += 1
        return (cpu(self.daemon) - begun) / rounds


def measure_collectives(report, rank, rounds):
    """By turns. The least is what holds: the machine is at its full speed in some of the rounds, seldom in all."""
    with_it, without = [], []
    rank.ask(f"collectives({CALLS})")
    for _ in range(rounds):
        rank.commands.run("ctl", "record collectives on\n")
        with_it.append(rank.ask(f"collectives({CALLS})"))
        rank.commands.run("ctl", "record collectives off\n")
        without.append(rank.ask(f"collectives({CALLS})"))
    more = median([ours - other for ours, other in zip(with_it, without)])
    report.row("a collective, gloo, one rank", nanoseconds(median(without)),
               f"recorded {nanoseconds(median(with_it))}, by pairs {nanoseconds(more)} more; the least of {rounds} "
               f"rounds: {nanoseconds(min(without))}, recorded {nanoseconds(min(with_it))}")
    report.budget("record collectives, of a call", min(with_it) - min(without), COLLECTIVE, nanoseconds)


def measure_tensors(report, rank):
    before = rank.daemon_takes("SELECT count(*) FROM torch_tensors;\n")
    rank.ask(f"keep({TENSORS})")
    shape = (rank.daemon_takes("SELECT count(shape) FROM torch_tensors;\n") - before) / TENSORS
    report.row(f"the shape of one of {TENSORS} tensors", nanoseconds(shape))
    report.budget("a tensor's shape", shape, SHAPE, nanoseconds)
    rank.ask("kept.clear() or 0")
    large = "SELECT max({}) FROM torch_tensors WHERE bytes > 60000000;\n"
    values = (rank.daemon_takes(large.format("norm")) - rank.daemon_takes(large.format("bytes"))) / 64
    report.row("the norm of a MB of float32", show(values))
    report.budget("a MB of values", values, VALUES)


def watched(rank, line):
    """Has it watched by a debug register, or nothing. False: there is no register."""
    path = rank.commands.directory / "breakpoints"
    rank.commands.run("breakpoints", "\n")
    path.write_text(line)
    for _ in range(TRIES):
        time.sleep(SETTLED)
        text = path.read_text()
        if not text.strip() or " hw, 0 hits, by p" in text:
            return True
    return False


def measure_watch(report, rank, rounds):
    address = int(rank.ask("counter()"))
    lines = {"nothing": "\n", "address": f"log watch 0x{address:x}:4\n", "tensor": "log watch weight\n"}
    took = {name: [] for name in lines}
    for _ in range(rounds):
        for name, line in lines.items():
            try:
                armed = watched(rank, line)
            except OSError as error:
                return skip("watching a tensor", error.strerror)
            if not armed:
                return skip("watching a tensor", "no debug register")
            took[name].append(rank.ask(f"changes({CHANGES})"))
    (rank.commands.directory / "breakpoints").write_text("\n")
    plain, address, tensor = (median(took[name]) for name in lines)
    # pairs, one after the other: a trap takes twice as long in one minute as in the next
    more = median([ours - other for ours, other in zip(took["tensor"], took["address"])])
    report.row("add_() in place", nanoseconds(plain), f"its counter's address watched {nanoseconds(address)}, "
               f"the tensor {nanoseconds(tensor)}, by pairs {nanoseconds(more)} more; the least of {rounds} rounds: "
               f"{', '.join(nanoseconds(min(took[name])) for name in lines)}")
    return report.budget("watch TENSOR, beside its counter's address", more, TRAP, nanoseconds)


def beside_clush(hosts, rounds):
    """{what: seconds}: medians of commands by turns."""
    clush, _ = hosts.engine()
    asked = {
        "clush true": lambda: hosts.at_head("sh", "-c", f"{clush} -w {hosts.names} true"),
        "across backtrace": lambda: hosts.across("backtrace"),
        "across query": lambda: hosts.across("query", "SELECT rank, state, rss FROM process"),
        "across eval": lambda: hosts.across("eval", "rank == bad"),
    }
    took = {name: [] for name in asked}
    hosts.across("eval", "1")  # agents are put in, once
    for _ in range(rounds):
        for name, command in asked.items():
            took[name].append(timed(command))
    return {name: statistics.median(seconds) for name, seconds in took.items()}


def measure_across(report, python, rounds):
    if os.geteuid() or not shutil.which("clush"):
        return skip("across", "namespaces want root" if os.geteuid() else "clush is not installed")
    with Hosts(HOSTS, LOCAL, python) as hosts:
        hosts.wait_for_ranks()
        took = beside_clush(hosts, rounds)
    for name, seconds in took.items():
        report.row(f"{HOSTS} hosts, {hosts.world} ranks: {name}", show(seconds), ratio(seconds / took["clush true"]))
    return report.budget(f"across backtrace on {HOSTS} hosts, by clush true",
                         took["across backtrace"] / took["clush true"], ACROSS, ratio)


def measure_ranks(report, probe, args):
    print("\n== Ranks of a job")
    plain = next((i for i in machine.interpreters() if i.root == pathlib.Path("/") and i.version >= (3, 10)), None)
    if not plain:
        return skip("ranks", "no interpreter that isn't in a root of its own")
    measure_all(report, probe, plain, args.rounds)
    for interpreter in sorted(machine.interpreters(), key=lambda i: i.source != "debian"):
        if interpreter.version < (3, 10):
            continue
        rank = Torch(probe, interpreter)
        if rank.usable:
            measure_collectives(report, rank, max(5, TURNS * args.rounds))
            measure_tensors(report, rank)
            measure_watch(report, rank, max(5, TURNS * args.rounds))
            rank.target.close()
            break
        rank.target.close()
    else:
        skip("collectives and tensors", "no interpreter here can import torch")
    return measure_across(report, plain.executable, max(3, args.rounds // 4))
