"""The victims of tests/targets/storm, running: what they did, and what was left in them.

A victim judges its own results (tests/targets/storm/workload.py); Victim asks it, and looks from outside for
what it can't see itself: that it is alive and moves, its descriptors, its mappings, its threads.
"""
import contextlib
import json
import os
import pathlib
import shutil

import harm
import interpreters as machine
import mount
from interpreters import eventually

MOVES = 60  # seconds within which each thread of a victim ends a round, on however busy a machine
ENDS = 60   # and within which it ends when it is told to

# name: its script and arguments. "numpy" wants what most interpreters here have not.
KINDS = {
    "idle": ("idle",),
    "sums": ("sums",),
    "sums, 4 threads": ("sums", 4),
    "malloc": ("malloc_churn", 1),
    "malloc, 4 threads": ("malloc_churn", 4),
    "allocators": ("allocators",),
    "allocators, debug": ("allocators", "debug"),
    "importer": ("importer", 1),
    "importer, 3 threads": ("importer", 3),
    "loader": ("loader", 1),
    "loader, 3 threads": ("loader", 3),
    "numpy": ("numbers_loop",),
    "fork": ("fork_loop", 1),
    "fork, 3 threads": ("fork_loop", 3),
    "200 threads": ("many_threads", 200),
    "short threads": ("short_threads", 2),
    "threads that start": ("starting", 4),
    "waits": ("waits",),
    "waits, Python's": ("waits", "python"),
    "gil sleeper": ("gil_sleeper",),
    "signals": ("signals_counted",),
    "wakened": ("wakened",),
    "registers": ("vectors", 1),
    "errno": ("errno_kept",),
    "pending calls": ("pending_calls",),
    "exec": ("exec_loop",),
    "asyncio": ("aio_loop",),
    "spawner": ("spawner", 1),
}


def library():
    """The compiled tests/targets/storm/checks.c."""
    return mount.build() / "tests" / "targets" / "checks.so"


def can_run(interpreter, kind):
    """Whether this interpreter has what that victim needs."""
    return kind != "numpy" or _has_numpy(interpreter)


def _has_numpy(interpreter, _known={}):
    if interpreter not in _known:
        import subprocess
        _known[interpreter] = subprocess.run(interpreter.command("-c", "import numpy"),
                                             capture_output=True).returncode == 0
    return _known[interpreter]


class Harm(AssertionError):
    """Something was done to a victim. kind: "crash", "hang", "wrong" or "leak", or "daemon" for what was done to that.
    What tells how it came about is kept."""

    def __init__(self, kind, words, victim):
        super().__init__(f"{kind}: {victim} {words}")
        self.kind = kind
        harm.keep(kind, f"{victim} {words}", victim.target, victim.pid)


class Victim:
    """One of KINDS under an interpreter. within: a command that starts it and becomes it, or stays
    its parent."""

    def __init__(self, interpreter, kind, user=None, within=()):
        checks = interpreter.directory / "storm" / "checks.so"
        if not checks.exists():
            shutil.copy(library(), checks)
        script, *arguments = KINDS[kind]
        self.kind, self.interpreter = kind, interpreter
        self.target = interpreter.run(f"storm/{script}.py", *arguments, user=user, within=within,
                                      env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
        self.pid = _itself(self.target.pid)

    def __str__(self):
        return f"{self.kind} on {self.interpreter}"

    def alive(self):
        return self.target.process.poll() is None

    def ask(self, word, timeout=MOVES):
        """Its answer to a command, one line."""
        try:
            self.target.send(word)
            said = self.target.readline(timeout)
        except (BrokenPipeError, AssertionError):
            said = ""
        if not said:
            ended = eventually_ended(self.target)
            assert not machine.gave_up, f"{self} did not answer {word!r} before the case's deadline"
            if ended:
                raise Harm("crash", f"ended with {self.target.process.returncode}: {self.target.stderr()[-2000:]}",
                           self)
            raise Harm("hang", f"did not answer {word!r}: {self.stacks()}", self)
        return said

    def stacks(self):
        """What each thread is in, as far as /proc says, for a report."""
        seen = []
        for task in pathlib.Path(f"/proc/{self.pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                seen.append(f"{task.name} {task.joinpath('wchan').read_text()} "
                            f"{task.joinpath('syscall').read_text().split()[0]}")
        return "; ".join(seen[:20])

    def report(self):
        return json.loads(self.ask("report"))

    def judge(self):
        """Returns once each thread has ended a further round, all of them well."""
        before = self.report()["rounds"]

        def all_moved():
            said = self.report()
            if said["wrong"]:
                raise Harm("wrong", f"got {said['wrong']} wrong results: {said['words']}", self)
            return all(now > then for now, then in zip(said["rounds"], before))

        try:
            eventually(all_moved, MOVES, "a round of each thread")
        except Harm:
            raise
        except AssertionError:
            raise Harm("hang", f"has threads that stand still: {self.stacks()}", self) from None

    @contextlib.contextmanager
    def resting(self):
        """All its threads stand between two rounds meanwhile."""
        self.ask("rest")
        yield
        self.ask("go")

    def footprint(self):
        """What it has open and mapped, and how many threads, while it rests."""
        with self.resting():
            return Footprint(self.pid)

    def end(self):
        """Tells it to end, and judges how it did."""
        try:
            said = json.loads(self.ask("stop", ENDS))
            if said["wrong"]:
                raise Harm("wrong", f"got {said['wrong']} wrong results: {said['words']}", self)
            try:
                status = self.target.process.wait(machine.patience(ENDS))
            except Exception:
                raise Harm("hang", f"does not exit: {self.stacks()}", self) from None
            if status:
                raise Harm("crash", f"exited with {status}: {self.target.stderr()[-2000:]}", self)
        finally:
            self.close()

    def close(self):
        self.target.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _itself(pid):
    """The process that the victim is: what was started, or the child of what started it."""
    if "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
        return pid
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def eventually_ended(target):
    try:
        eventually(lambda: target.process.poll() is not None, 0.5)
    except AssertionError:
        return False
    return True


class Footprint:
    """The descriptors, mappings and threads of a process at one moment."""

    def __init__(self, pid):
        self.descriptors = {}
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                self.descriptors[link.name] = os.readlink(link)
        self.mappings = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
        self.threads = len(os.listdir(f"/proc/{pid}/task"))

    def size(self):
        """Bytes mapped; not what malloc only reserves, 64 MiB for each arena."""
        ranges = (line.split()[0].split("-") for line in self.mappings if " ---p " not in line)
        return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)

    def leaked(self, before):
        """Words for each descriptor and thread that is here and was not there."""
        words = [f"descriptor {number} -> {where}" for number, where in self.descriptors.items()
                 if number not in before.descriptors]
        if self.threads > before.threads:
            words.append(f"{self.threads - before.threads} threads")
        return words

    def foreign(self):
        """Mappings that are ours: of the agent's library, or of a deleted memory file."""
        return [line for line in self.mappings if "memfd:" in line or "probe-agent" in line]
