"""A job whose ranks, workers and daemon are killed at random while each command is given to it: what is lost is named
or gone, who was let alone answers, and nothing takes longer than its deadline. For tests/storm --jobs and its case.
"""
import collections
import errno
import os
import random
import re
import signal
import threading
import time

from interpreters import eventually, patience

WORLD = 8
DEADLINE = 75  # seconds: a command to many processes has 60
RANK = """
import os, sys, time
rank, step = int(os.environ["RANK"]), 0
def wait():
    while True:
        time.sleep(0.02)
def train():
    global step
    while True:
        step += 1
        time.sleep(0.002)
worker = os.fork()
if not worker:
    wait()
print("ready", worker, flush=True)
train()
"""
# of a call while the daemon is killed, and of one that finds the mount of a dead one, or none
DEAD = {errno.ENOTCONN, errno.ECONNABORTED, errno.ENOENT, errno.EIO, errno.ENODEV, errno.EINTR}
# of a command none of whose processes is left: they have ended meanwhile
ENDED = {errno.ESRCH, errno.ENOENT, errno.EIO, errno.ECONNRESET, errno.EPIPE, errno.EAGAIN, errno.ETIMEDOUT,
         errno.EBUSY}


def ranks_of(text):
    """{n} of "0-3,5"; "none" has none."""
    found = set()
    for part in text.split(",") if text != "none" else []:
        first, _, last = part.strip().partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


class Rank:
    def __init__(self, python, number, env):
        self.number = number
        self.target = python.run_source(RANK, name="of_a_storm.py", env={**env, "RANK": str(number)}, ready=False)
        self.worker = int(self.target.readline().removeprefix("ready "))

    def lives(self):
        return self.target.process.poll() is None


class JobStorm:
    """freezes: a rank may also be stopped, as by kill -STOP, until the command is over; it takes its time."""

    def __init__(self, probe, python, seed, freezes=False):
        self.probe, self.python, self.dice, self.freezes = probe, python, random.Random(seed), freezes
        port = str(self.dice.randrange(10**6, 10**9))
        self.env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(WORLD),
                    "LOCAL_WORLD_SIZE": str(WORLD)}
        self.name = f"127.0.0.1:{port}"
        self.ranks = [Rank(python, n, {**self.env, "LOCAL_RANK": str(n)}) for n in range(WORLD)]
        self.done = collections.Counter()  # words -> how often
        self.longest = {}                  # command -> seconds
        self.lost, self.daemon, self.frozen = set(), False, None

    def path(self, name):
        return self.probe.path / "jobs" / self.name / name

    # What is lost

    def _lose_rank(self):
        rank = self.dice.choice(self.ranks)
        self.lost.add(rank.number)
        os.kill(rank.target.pid, signal.SIGKILL)

    def _lose_worker(self):
        rank = self.dice.choice(self.ranks)
        try:
            os.kill(rank.worker, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def _freeze_rank(self):
        rank = self.dice.choice(self.ranks)
        if rank.lives():
            self.frozen = rank
            os.kill(rank.target.pid, signal.SIGSTOP)

    def _lose_daemon(self):
        self.daemon = True
        self.probe.kill()
        time.sleep(self.dice.choice([0, 0.02]))
        self.probe.start()

    def _losses(self):
        for _ in range(self.dice.randint(1, 3)):
            time.sleep(self.dice.choice([0, 0.001, 0.005, 0.02, 0.1]))
            what = self.dice.choice([self._lose_rank] * 5 + [self._lose_worker] * 3 + [self._lose_daemon] +
                                    [self._freeze_rank] * self.freezes)
            what()
            self.done[what.__name__[1:].replace("_", " ")] += 1

    # What is asked meanwhile; each returns the ranks that have answered, if it can tell

    def backtrace(self):
        said = self._read("backtrace")
        head = re.search(r"^Job \S+: ranks (\S+) of 8(?:, not here: (\S+))?$", said, re.M)
        seen = set().union(*(ranks_of(who) for who in re.findall(r"^ranks? (\S+) \(\d+\):", said, re.M)))
        assert head or not seen, said
        assert not head or ranks_of(head[1]) | ranks_of(head[2] or "none") == set(range(WORLD)), said
        return seen

    def stacks(self):
        return self._read("stacks.folded") and None

    def collectives(self):
        return self._read("collectives") and None

    def metrics(self):
        said = self._read("metrics")
        assert said.endswith("# EOF\n"), said[-200:]
        return {int(n) for n in re.findall(r'^probefs_process_info\{.*rank="(\d+)"', said, re.M)}

    def status(self):
        said = dict(line.split(": ", 1) for line in self._read("status").splitlines())
        here, missing = ranks_of(said["Here"]), ranks_of(said["Missing"])
        assert here | missing == set(range(WORLD)) and not here & missing, said
        return here

    def query(self):
        rows = self._ask("query", "SELECT rank, tid, state FROM threads WHERE is_main = 1;\n").splitlines()
        assert rows[0] == "rank,tid,state", rows
        return {int(row.split(",")[0]) for row in rows[1:]}

    def eval(self):
        said = self._ask("eval", "os.getpid()\n")
        answers = re.findall(r"^ranks? (\S+) \(\d+\):(?: (\d+)$|.*)", said, re.M)
        for who, pid in answers:
            for number in ranks_of(who) if pid else ():
                assert int(pid) == self.ranks[number].target.pid, (said, "a worker has answered for its rank")
        return set().union(*(ranks_of(who) for who, _ in answers))

    def eval_some(self):
        some = sorted(self.dice.sample(range(WORLD), 3))
        said = self._ask("eval", f"on {','.join(map(str, some))}\nrank\n")
        assert set(map(int, re.findall(r"^rank (\d+) \(1\): \d+$", said, re.M))) <= set(some), said

    def ctl(self):
        verb = self.dice.choice(["status", "record gc on", "record gc off", "pause for 20ms", "continue",
                                 "stop all for 20ms", "on-crash record", "on-crash off"])
        self._ask("ctl", verb + "\n")

    def breakpoints(self):
        self._ask("breakpoints", self.dice.choice(["log of_a_storm.py:11 {step} x 5\n", "log train()\n", "-1\n"]))

    def events(self):
        fd = os.open(self.path("events"), os.O_RDONLY | os.O_NONBLOCK)
        try:
            time.sleep(0.05)
            os.read(fd, 1 << 16)
        except BlockingIOError:
            pass
        finally:
            os.close(fd)

    def _read(self, name):
        return self.path(name).read_text()

    def _ask(self, name, text):
        fd = os.open(self.path(name), os.O_RDWR)
        try:
            os.write(fd, text.encode())
            said = b""
            while got := os.read(fd, 1 << 16):
                said += got
            return said.decode()
        finally:
            try:
                os.close(fd)
            except OSError:
                pass

    COMMANDS = (backtrace, stacks, collectives, metrics, status, query, eval, eval_some, ctl, breakpoints, events)

    def round(self, command):
        """One command, and what is lost meanwhile; then all are there again."""
        self.lost, self.daemon, self.frozen = set(), False, None
        name = command.__name__
        losing = threading.Thread(target=self._losses)
        late = threading.Timer(patience(DEADLINE), self._give_up, [name])
        late.start()
        losing.start()
        time.sleep(self.dice.choice([0, 0, 0.002, 0.01, 0.05]))
        begun = time.monotonic()
        seen = None
        try:
            seen = command(self)
            self.done[name] += 1
        except OSError as error:
            losing.join()
            harmed = self.lost or self.frozen
            assert error.errno in (DEAD | ENDED if self.daemon else ENDED if harmed else ()), (name, error, self.lost)
            self.done[f"{name}: {error.strerror}"] += 1
        finally:
            took = time.monotonic() - begun
            losing.join()
            late.cancel()
        self.longest[name] = max(took, self.longest.get(name, 0))
        assert took < patience(DEADLINE), (name, took)
        assert self.probe.alive(), self.probe.log()[-2000:]
        if seen is not None and not self.daemon:
            unharmed = {rank.number for rank in self.ranks} - self.lost
            assert unharmed <= seen, (name, "rank", unharmed - seen, "has not answered, and was let alone")
        self._restore()

    def _give_up(self, name):
        self.done[f"{name}: hung"] += 1
        self.probe.process.kill()

    def _restore(self):
        if self.frozen and self.frozen.lives():
            os.kill(self.frozen.target.pid, signal.SIGCONT)
        for rank in self.ranks:
            if rank.number in self.lost:
                rank.target.process.wait(patience(30))
                rank.target.close()
                self.ranks[rank.number] = Rank(self.python, rank.number, {**self.env, "LOCAL_RANK": str(rank.number)})
            else:
                assert rank.lives(), f"rank {rank.number} ended, and nobody killed it: {rank.target.stderr()[-2000:]}"
        eventually(lambda: self._here() == set(range(WORLD)), what="all ranks")

    def _here(self):
        try:
            return ranks_of(re.search("^Here: (.*)$", self._read("status"), re.M)[1])
        except FileNotFoundError:
            return None

    def run(self, rounds):
        eventually(lambda: self._here() == set(range(WORLD)), what="all ranks")
        for number in range(rounds):
            self.round(self.COMMANDS[number % len(self.COMMANDS)])
        self._run_on()

    def _run_on(self):
        """Each goes on with its steps."""
        try:
            self._ask("breakpoints", "\n")
            self._ask("ctl", "continue\n")
        except OSError:
            pass  # nothing is held

        def steps():
            return [int(re.search(r"^step = (\d+)$", self.probe.read(rank.target.pid, "globals", "__main__"), re.M)[1])
                    for rank in self.ranks]
        begun = steps()
        eventually(lambda: all(now > then for now, then in zip(steps(), begun)), what="steps of all")
        assert all(rank.lives() for rank in self.ranks)

    def close(self):
        for rank in self.ranks:
            rank.target.close()
