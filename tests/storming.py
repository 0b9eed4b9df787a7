"""Attaching and detaching again and again, and what that does to a victim.

A way in is what does some cycles: Mounted writes to the files of a mount, as a person does;
Recorded has the flight recorder switched on and off meanwhile; Injected runs tests/inject_cycle, without agent and daemon. storm() takes victims through many and
returns what came of it.
"""
import errno
import random
import re
import statistics
import subprocess
import time

import mount

from commands import Commands, fields
from victims import Harm, Victim

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
                raise Harm("daemon", f"{victim}: {'hung' if commands.hung else 'died'} in cycle "
                                     f"{number}: {self.probe.log()[-2000:]}") from None
            if error.errno not in REFUSALS:
                raise Harm("wrong", f"{victim}: {error}") from None
            tally.refuse(str(error))
            self._clean(commands)

    def _inside(self, commands, victim, number):
        """What is done while the agent is there."""
        if number % EVAL_EVERY == 0:
            said = commands.eval(f"{number} + 1")
            if said != f"{number + 1}\n":
                raise Harm("wrong", f"{victim}: eval said {said!r}")

    def _clean(self, commands):
        """What is refused half-way must not stay."""
        try:
            commands.detach()
        except OSError:
            pass


class Recorded(Mounted):
    """The same with recorders on: some are switched off, the others are met by the detach."""

    def __init__(self, probe, way="", seed=None):
        super().__init__(probe, way)
        self.dice = random.Random(seed)
        self.imports = self.dice.random() < 0.5  # a module that is imported is never unloaded

    def _inside(self, commands, victim, number):
        chosen = self.dice.sample(RECORDERS, self.dice.randrange(1, len(RECORDERS) + 1))
        for table in chosen:
            self._switch(commands, table, self.dice.choice(["on", "64K", "1M"]))
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


class Injected:
    """The injector alone, with a library that fills registers, allocates, and is unloaded again."""

    def __init__(self):
        self.program = mount.build() / "tests" / "inject_cycle"
        self.library = mount.build() / "tests" / "intruder.so"

    def cycles(self, victim, first, count, tally):
        command = [self.program, str(victim.pid), str(count), self.library, "--unload", "--call",
                   "intruder_call"]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=60 * count)
        except subprocess.TimeoutExpired:
            raise Harm("daemon", f"{victim}: {command} hung") from None
        if said.returncode not in (0, 1) or said.stderr:
            raise Harm("daemon", f"{victim}: {command}: {said.returncode} {said.stderr}")
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


def storm(way, interpreter, kind, cycles):
    """So many cycles on victims of one kind, a new one whenever one was harmed."""
    tally = Tally(f"{kind}, {interpreter}")
    for _ in range(LIVES):
        if tally.cycles >= cycles:
            break
        try:
            _one_life(way, interpreter, kind, cycles, tally)
        except Harm as harm:
            tally.harms.append(harm)
            if harm.kind == "daemon":
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
        after = _calm(victim, before)
        if after.leaked(before):
            tally.harms.append(Harm("leak", f"{victim}: {after.leaked(before)}"))
        tally.growth = max(tally.growth, after.size() - before.size())
        if tally.growth > GROWN:
            tally.harms.append(Harm("leak", f"{victim}: mappings grew by {tally.growth} bytes"))
        victim.end()


def _calm(victim, before):
    """Its footprint once what the last cycle started has ended: a thread that was told to may still be
    on its last instructions."""
    end = time.monotonic() + CALM
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
