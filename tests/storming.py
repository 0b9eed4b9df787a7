"""Attaching and detaching again and again, and what that does to a victim.

A way in is what does some cycles: Mounted writes to the files of a mount, as a person does; Recorded has the flight
recorder switched on and off meanwhile; Sampled has allocations sampled; Debugged sets breakpoints and watchpoints,
stops threads and steps, and kills the daemon now and then; Injected runs tests/inject_cycle, without agent and daemon.
storm() takes victims through many and returns what came of it. """
import collections
import contextlib
import errno
import os
import random
import re
import statistics
import subprocess
import time

import mount

from commands import Commands, fields
from interpreters import TARGETS, patience
from victims import KINDS, Harm, Victim

WARM_UP = 3       # cycles after which a victim has what it will keep: stacks, arenas, modules
JUDGED_EVERY = 8  # cycles
EVAL_EVERY = 4
LIVES = 3         # victims that one storm() may use up before it gives up
RECORDERS = ["exceptions", "gc", "process"]
CALM = 5          # seconds
GROWN = 16 << 20  # bytes of mappings: more than malloc's arenas and cached stacks explain

# what a write may be refused with; ENOMEM: no thread can be started while the program is replaced
REFUSALS = {errno.EBUSY, errno.ETIMEDOUT, errno.EOPNOTSUPP, errno.EPERM, errno.ESRCH, errno.ENOENT,
            errno.ENOMEM}


class Tally:
    """What a storm did to one kind of victim under one interpreter."""

    def __init__(self, name):
        self.name = name
        self.cycles = 0
        self.harms = []      # Harm, of whatever kind
        self.refusals = {}   # words -> how often
        self.attach = []     # seconds
        self.pause = []      # seconds
        self.growth = 0      # bytes of mappings
        self.kept = 0        # times that the library could not be unloaded

    def refuse(self, words):
        words = re.sub(r"[./]{9,}", "/", re.sub(r"\d+", "N", words))[:150]  # the same but for numbers
        self.refusals[words] = self.refusals.get(words, 0) + 1

    def count(self, kind):
        return sum(harm.kind == kind for harm in self.harms)

    def add(self, other):
        self.cycles += other.cycles
        self.harms += other.harms
        self.attach += other.attach
        self.pause += other.pause
        self.growth = max(self.growth, other.growth)
        self.kept += other.kept
        for words, times in other.refusals.items():
            self.refusals[words] = self.refusals.get(words, 0) + times


class Mounted:
    """The way through the mount. way: `attach` is told to go."""

    def __init__(self, probe, way=""):
        self.probe, self.way = probe, way

    def cycles(self, victim, first, count, tally):
        for number in range(first, first + count):
            self._cycle(victim, number, tally)

    def _cycle(self, victim, number, tally):
        commands = Commands(self.probe, victim.pid)
        try:
            begin = time.perf_counter()
            said = fields(commands.attach(self.way))
            tally.attach.append(time.perf_counter() - begin)
            if "AgentPause" in said:  # else it executes another program by now
                tally.pause.append(float(said["AgentPause"]))
            self._inside(commands, victim, number)
            tally.kept += "none" not in fields(commands.detach())["Agent"]
        except OSError as error:
            if commands.hung or not self.probe.alive():
                raise Harm("daemon", f"saw it {'hang' if commands.hung else 'die'} in cycle {number}: "
                                     f"{self.probe.log()[-2000:]}", victim) from None
            if error.errno not in REFUSALS:
                raise Harm("wrong", f"was refused: {error}", victim) from None
            tally.refuse(str(error))
            self._clean(commands)

    def _inside(self, commands, victim, number):
        """What is done while the agent is there."""
        if number % EVAL_EVERY == 0:
            said = commands.eval(f"{number} + 1")
            if said != f"{number + 1}\n":
                raise Harm("wrong", f"was evaluated in: {said!r}", victim)

    def _clean(self, commands):
        """What is refused half-way must not stay. The agent of a killed daemon answers nobody before what that had left
        in the debug registers is cleared (agent/watch/stale_registers.h): seconds on a busy machine."""
        end = time.monotonic() + patience(CALM)
        while True:
            try:
                commands.detach()
                return
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > end:
                    return
                time.sleep(0.05)


class Recorded(Mounted):
    """The same with recorders on: some are switched off, the others are met by the detach."""

    def __init__(self, probe, way="", seed=None):
        super().__init__(probe, way)
        self.dice = random.Random(seed)
        self.imports = self.dice.random() < 0.5  # a module that is imported is never unloaded

    def _inside(self, commands, victim, number):
        chosen = self.dice.sample(RECORDERS, self.dice.randrange(1, len(RECORDERS) + 1))
        for table in chosen:
            self._switch(commands, table, self.dice.choice(["on", "64K", "1M"]) +
                         self.dice.choice(["", " locals"]) * (table == "exceptions"))
        if number % EVAL_EVERY == 0 and self.imports:
            commands.eval("import probing\nwith probing.span('storm', number=1): probing.event('here')")
        time.sleep(self.dice.choice([0, 0.005, 0.05]))
        for table in chosen:
            if self.dice.random() < 0.7:
                self._switch(commands, table, self.dice.choice(["off", "off", "128K"]))

    def _switch(self, commands, table, how):
        try:
            commands.run("ctl", f"record {table} {how}\n")
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # not every interpreter can tell of exceptions
                raise


class Sampled(Mounted):
    """The same with allocations sampled, on and off, and met by the detach; and a daemon that is killed now and
    then."""
    KILLED_EVERY = 6  # cycles, about

    def __init__(self, probe, way="", seed=None):
        super().__init__(probe, way)
        self.dice = random.Random(seed)

    def _inside(self, commands, victim, number):
        for _ in range(self.dice.randint(1, 5)):
            commands.run("ctl", f"heap sites {self.dice.choice(['on 1K', 'on 1K', 'on 64K', 'on', 'off'])}\n")
            time.sleep(self.dice.choice([0, 0.001, 0.02, 0.05]))
            said = (commands.directory / "heap" / "sites").read_text()
            if not said.startswith(("# o", "# nothing")):
                raise Harm("wrong", f"has no sites: {said[:200]!r}", victim)
        if number % EVAL_EVERY == 0:
            commands.eval("import os, threading\nthreading.Thread(target=os.getpid).start()")
        if self.dice.randrange(self.KILLED_EVERY) == 0:
            self.probe.kill()
            time.sleep(self.dice.choice([0, 0.02]))
            self.probe.start()
            commands.attach(self.way)


class Debugged(Mounted):
    """The same with breakpoints at random places of the victim, and everything that one does with them."""
    MOST = 6          # things done in a cycle
    KILLED_EVERY = 6  # cycles, about
    VERBS = ["continue", "step", "next", "finish", "return", "until", "step own"]
    CONDITIONS = ["", "", " if True", " if False", " if 1 / 0", " if nothing_has_that_name", " {__name__, 1 / 0}",
                  " {[x for x in range(3)]}", " x 3"]
    WATCHED = ["workload.harmed", "workload._rounds[0]", "workload._wrong", "workload._slowest", "WAITS"]
    # what is written to $1/breakpoints and $1/ctl lives as long as it does
    DEBUGGER = """exec 3>>"$1/breakpoints" 4<>"$1/ctl"
while read -r line; do case $line in pause*|on-crash*) echo "here $line" >&4;; *) echo "here $line" >&3;; esac; done"""
    # a location that a victim hasn't, an expression without storage, a register that is taken, a thread that goes on
    MAY_BE = REFUSALS | {errno.EINVAL, errno.EAGAIN}

    def __init__(self, probe, way="", seed=None):
        super().__init__(probe, way)
        self.dice = random.Random(seed)
        self.done = collections.Counter()  # words -> how often

    def _inside(self, commands, victim, number):
        locations, self.victim = list(self._locations(victim)), victim
        doings = [self._set, self._set, self._pause, self._crash, self._steer, self._look, self._debugger,
                  self._debugger]
        for _ in range(self.dice.randint(1, self.MOST)):
            self._try(self.dice.choice(doings), commands, locations)
            time.sleep(self.dice.choice([0, 0.001, 0.02, 0.05]))
        if self.dice.randrange(self.KILLED_EVERY) == 0:
            self.probe.kill()
            time.sleep(self.dice.choice([0, 0.02]))
            self.probe.start()
            commands.attach(self.way)

    def _locations(self, victim):
        """Of its lines and functions."""
        for script in f"{KINDS[victim.kind][0]}.py", "workload.py":
            for number, line in enumerate((TARGETS / "storm" / script).read_text().splitlines(), 1):
                if re.match(r" +\w", line):
                    yield f"{script}:{number}"
                if function := re.match(r" *def (\w+)", line):
                    yield f"{function[1]}()"
                    yield f"return {function[1]}()"

    def _try(self, what, commands, locations):
        name = what.__name__[1:]
        try:
            what(commands, locations)
            self.done[name] += 1
        except OSError as error:
            if error.errno not in self.MAY_BE:
                raise
            self.done[f"{name}: {error.strerror}"] += 1

    def _line(self, locations):
        action = self.dice.choice(["", "log ", "stop for 5ms ", "stop for 30ms "])
        where = self.dice.choice(locations)
        kind = self.dice.randrange(8)
        if kind == 0:
            where = self.dice.choice(["raise", "raise ValueError", "raise OSError"])
        elif kind == 1:
            where = f"watch {self.dice.choice(self.WATCHED)}{self.dice.choice(['', ' hw=perf', ' hw=ptrace'])}"
        return f"{action}{where}{self.dice.choice(self.CONDITIONS)}\n"

    def _set(self, commands, locations):
        how = self.dice.choice([os.O_TRUNC, os.O_APPEND, 0])
        fd = os.open(commands.directory / "breakpoints", os.O_WRONLY | how)
        try:
            for _ in range(self.dice.randint(0, 3)):
                line = self._line(locations) if self.dice.random() < 0.8 else f"-{self.dice.randint(1, 4)}\n"
                os.write(fd, line.encode())
        finally:
            os.close(fd)

    def _debugger(self, commands, locations):
        """It is killed, whatever it is at, and all of it goes: what holds threads for minutes, too."""
        lines = [self.dice.choice([f"stop {self.dice.choice(locations)}", self._line(locations).strip(), "pause",
                                   "on-crash stop"])
                 for _ in range(self.dice.randint(1, 4))]
        with subprocess.Popen(["bash", "-c", self.DEBUGGER, "bash", commands.directory], stdin=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as debugger:
            debugger.stdin.write("\n".join([*lines, ""]))
            debugger.stdin.flush()
            time.sleep(self.dice.choice([0, 0.005, 0.02, 0.1]))
            debugger.kill()
        end = time.monotonic() + patience(CALM)
        while left := self._left(commands):
            if time.monotonic() > end:
                raise Harm("hang", f"has still, of a debugger that was killed: {left} (it was told {lines})",
                           self.victim)
            time.sleep(0.005)

    def _left(self, commands):
        """What is here of an open file, and threads that are held for longer than other lines say."""
        left = [line for line in commands.directory.joinpath("breakpoints").read_text().splitlines()
                if re.match(r"\d+: here ", line)]
        for thread in (commands.directory / "threads").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has ended
                said = thread.joinpath("ctl").read_text()
                left += [said] if re.search(r"goes on in \d\d+ s", said) else []
        return left

    def _pause(self, commands, _):
        commands.run("ctl", "pause for 20ms\n")

    def _crash(self, commands, _):
        commands.run("ctl", f"on-crash {self.dice.choice(['record', 'off', 'stop for 20ms'])}\n")

    def _steer(self, commands, _):
        """Whatever stands still."""
        for thread in list((commands.directory / "threads").iterdir())[:8]:
            if "stopped" in thread.joinpath("ctl").read_text():
                if self.dice.random() < 0.3:
                    commands.run(f"threads/{thread.name}/eval", "1 + 1\n")
                verb = self.dice.choice(self.VERBS)
                commands.run(f"threads/{thread.name}/ctl", f"{verb}\n")
                self.done[verb] += 1

    def _look(self, commands, _):
        for name in "breakpoints", "backtrace", "tables/hits.csv", "tables/breakpoints.csv":
            said = commands.directory.joinpath(name).read_bytes()
            self.done[f"lines of {name}"] += said.count(b"\n")


class Injected:
    """The injector alone, with a library that fills registers, allocates, and is unloaded again."""

    def __init__(self):
        self.program = mount.build() / "tests" / "inject_cycle"
        self.library = mount.build() / "tests" / "intruder.so"

    def cycles(self, victim, first, count, tally):
        command = [self.program, str(victim.pid), str(count), self.library, "--unload", "--call",
                   "intruder_call"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=patience(60 * count))
        except subprocess.TimeoutExpired:
            raise Harm("daemon", f"saw {command} hang", victim) from None
        if said.returncode not in (0, 1) or said.stderr:
            raise Harm("daemon", f"saw {command} end with {said.returncode}: {said.stderr}", victim)
        for line in said.stdout.splitlines():
            what, _, rest = line.partition(" ")
            if what not in ("cycle", "call", "unload"):
                continue
            result, _, pause, total, _, _, words = rest.split(" ", 6)
            if what == "cycle" and result == "0":
                tally.pause.append(int(pause) / 1e9)
                tally.attach.append(int(total) / 1e9)
            elif result != "0" and not (what == "call" and result.startswith("entry:")):
                tally.refuse(f"{what} {result} {words}")


def storm(way, interpreter, kind, cycles, keep_going=False):
    """So many cycles on a victim of one kind; ends when that was harmed. keep_going: with a new one then."""
    tally = Tally(f"{kind}, {interpreter}")
    for _ in range(LIVES):
        if tally.cycles >= cycles:
            break
        try:
            _one_life(way, interpreter, kind, cycles, tally)
        except Harm as harm:
            tally.harms.append(harm)
            if harm.kind == "daemon" or not keep_going:
                break
    return tally


def _one_life(way, interpreter, kind, cycles, tally):
    with Victim(interpreter, kind) as victim:
        victim.judge()
        before, number = None, 0
        while tally.cycles < cycles or before is None:
            if number == WARM_UP:
                before = victim.footprint()
            count = min(JUDGED_EVERY, cycles - tally.cycles) if before else WARM_UP
            way.cycles(victim, number, count, tally)
            tally.cycles += count
            number += count
            victim.judge()
        after = calm(victim, before)
        if after.leaked(before):
            tally.harms.append(Harm("leak", f"kept {after.leaked(before)}", victim))
        tally.growth = max(tally.growth, after.size() - before.size())
        if tally.growth > GROWN:
            tally.harms.append(Harm("leak", f"has mappings that grew by {tally.growth} bytes", victim))
        victim.end()


def calm(victim, before):
    """Its footprint once what the last cycle started has ended: a thread that was told to may still be
    on its last instructions."""
    end = time.monotonic() + patience(CALM)
    while True:
        after = victim.footprint()
        if not after.leaked(before) or time.monotonic() > end:
            return after
        time.sleep(0.05)


def percentile(values, share):
    """0 < share < 1; None where there are no values."""
    if len(values) < 2:
        return values[0] if values else None
    return statistics.quantiles(values, n=100, method="inclusive")[round(share * 100) - 1]
