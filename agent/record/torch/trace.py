"""Finds the steps of a training loop, and records some of them.

A step ends when an optimizer has made its step(). Of several optimizers one leads: the one with the most numbers
to optimize among those that take turns; the others' steps are parts of its steps. Their numbers are those that
the optimizer counts, if it does, and the same on all ranks, which therefore record the same ones: those whose
number is a multiple of `interval`.

`live` is what our functions in the program find us by: "training", "step" while one is recorded, "profile" while
there is one (profile.py), and "writing" while its rows are written. It is emptied to end it all: then nothing of
ours does anything any more."""
import os
import sys
import _thread
from _weakref import ref

PATIENCE = 100      # steps of others after which the leader is given up
OPTIMIZERS_MAX = 4096
PENDING_MAX = 4     # steps whose rows wait for the GPU
LEAVE_TRIES = 2000  # milliseconds to wait for threads that are just in our code

live = {}
words = ""          # why it ended by itself


def first_parameter(optimizer):
    return next((parameter for group in optimizer.param_groups for parameter in group["params"]), None)


def count_of(optimizer):
    """How many steps it has made, as it counts them itself; None: it doesn't, or on the GPU."""
    parameter = first_parameter(optimizer)
    state = optimizer.state
    step = state[parameter].get("step") if parameter is not None and parameter in state else None
    if type(step) is int or type(step) is float:
        return int(step)
    if step is not None and step.device.type == "cpu":  # else one would have to wait for it
        return int(step.item())
    return None


class Changes:
    """How many steps an optimizer has made that doesn't say so. PyTorch counts how often a tensor was
    written to, which each step does as often as any other. Some of that was before the first step: so this
    is a little more, but the same on all ranks."""

    def __init__(self, optimizer):
        parameter = first_parameter(optimizer)
        self.parameter = ref(parameter) if parameter is not None else lambda: None
        self.before = parameter._version if parameter is not None else 0

    def count(self):
        """After one step more; None: can't be told."""
        parameter = self.parameter()
        change = parameter._version - self.before if parameter is not None else 0
        return parameter._version // change if change > 0 else None


def size_of(optimizer):
    return sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])


class Training:
    def __init__(self, interval):
        self.interval = interval # None: none is recorded
        self.layers = 1         # of so many modules one is looked at
        self.pid = os.getpid()
        self.modules, self.labels = Modules(), Labels()
        self.seen = {}          # id -> weak reference: optimizers, until there is a leader
        self.leader = None      # weak reference
        self.others = 0         # steps of others since the leader's last
        self.count = 0          # steps of the leader
        self.learned = False    # the names of modules, and how many steps there were
        self.changes = None     # while that is learned
        self.step = None        # the one that is recorded
        self.shadow = None      # the clock of one that is only timed
        self.clocks = []        # of steps that wait for the GPU
        self.recorded = self.cut = 0
        self.leaving = False    # all is to go as soon as its profile ends
        self.compiled = False

    # ---- what the optimizers call

    def begin(self, optimizer=None):
        """None, if it is a part of another one's step()."""
        try:
            if optimizer is None or is_inner():
                return None
            step = self.step
            return step.clock.now() if step is not None and step.thread == _thread.get_ident() else False
        except Exception as problem:
            fail(problem)
            return None

    def end(self, began, optimizer):
        try:
            step = self.step
            if began is not False and step is not None:
                step.row(step.take_seq(), self.labels.of(optimizer), "step", began, step.clock.now())
            if self.clocks:
                self.settle()
            if self.leader is None or self.leader() is not optimizer:
                self.other(optimizer)
            else:
                self.others = 0
                self.count += 1
                self.turn(optimizer)
        except Exception as problem:
            fail(problem)

    # ---- who leads

    def other(self, optimizer):
        if self.leader is not None and self.leader() is not None:
            self.others += 1
            if self.others < PATIENCE:
                return
        self.leader, self.others = None, 0
        known = self.seen.get(id(optimizer))
        if known is None or known() is not optimizer:
            if len(self.seen) < OPTIMIZERS_MAX:
                self.seen[id(optimizer)] = ref(optimizer)
            return
        candidates = [one for one in (known() for known in self.seen.values()) if one is not None]
        self.seen.clear()
        leader = max(candidates, key=size_of)
        self.leader, self.learned = ref(leader), False
        if leader is optimizer:
            self.turn(leader)

    # ---- steps

    def turn(self, leader):
        """The leader has just made a step."""
        step = self.step
        if step is not None:
            step.remove()
            self.step = None
            self.finish(step)
        if self.shadow is not None:
            clock, self.shadow = self.shadow, None
            clock.row(0, None, "shadow", clock.begun, clock.now())
            if not clock.settle():
                self.clocks.append(clock)
        if "profile" in live:
            if os.getpid() == self.pid:
                live["profile"].turn(lambda: count_of(leader) or self.count)
            else:
                live.pop("profile")
        if self.interval is None:
            return
        if not self.learned:
            self.learned = step is not None and step.silent
            if not self.learned:
                self.changes = Changes(leader)
                return self.record(leader, 0, silent=True)
            self.count = count_of(leader) or self.changes.count() or self.count
            self.changes = None
        if (self.count + 1) % self.interval == 0:
            if os.getpid() != self.pid:  # a child that goes on training isn't recorded
                stop()
            else:
                self.record(leader, self.count + 1)
        elif step is not None and not step.silent:
            self.shadow = clock_for(leader, self.count + 1)

    def record(self, leader, number, silent=False):
        self.modules.prepare()
        self.compiled = dynamo_is_used()
        clock = Clock(number) if silent else clock_for(leader, number)
        step = self.step = Step(clock, self.modules, live, fail, silent, 1 if silent else self.layers,
                                number // self.interval)
        if not self.compiled:
            step.install()

    def finish(self, step):
        step.row(0, None, "iteration", step.clock.begun, step.clock.now())
        if step.silent:
            return
        if step.clock.spent:
            step.clock.took(step.take_seq())
        self.recorded += 1
        self.cut += step.cut
        if step.cut:
            _probe.lose(step.cut)
        if not step.clock.settle():
            self.clocks.append(step.clock)
            del self.clocks[:-PENDING_MAX]

    def settle(self):
        while self.clocks and self.clocks[0].settle():
            del self.clocks[0]

    def describe(self):
        if self.leader is None or self.leader() is None:
            return "no optimizer has made its step yet"
        said = f"{self.recorded} steps recorded, step {self.count} of {self.labels.of(self.leader())} made"
        if self.cut:
            said += f"; {self.cut} calls of modules beyond {CALLS_MAX} a step not recorded"
        if self.compiled:
            said += "; modules are not looked at, since torch.compile() would compile them anew"
        return said


# ---- the end

def stop():
    """Takes everything out of the program. Any thread, but what others are just putting in; may be called
    again."""
    training, step = live.pop("training", None), live.pop("step", None)
    profile, _ = live.pop("profile", None), live.pop("writing", None)
    if profile is not None:
        profile.interrupt()
        profile.unguard()
    unwatch()
    unhook()
    for one in step, training and training.step:
        if one is not None:
            one.remove()
    DeviceClock.pool.clear()


def fail(problem):
    """Our mistakes end the recording, and nothing else."""
    global words
    if foreign(problem):
        raise problem
    at = problem.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    profiling = "profile" in live or "writing" in live
    where = f" ({at.tb_frame.f_code.co_filename}:{at.tb_lineno})" if at is not None else ""
    words = f"it ended by itself: {type(problem).__name__}: {problem}{where}"
    stop()
    _probe.give_up()
    if profiling:
        _probe.profile_give_up()


def wait(busy):
    """For as long as a thread is where it should not be disturbed, and not for long. Whether none is."""
    sleep = sys.modules["time"].sleep
    if not _probe.frames_are_safe():
        sleep(0.05)
        return False
    for _ in range(LEAVE_TRIES):
        if not busy():
            return True
        sleep(0.001)
    return False


def raising():
    """Whether a thread may just go through the hooks, as it does where a module has raised (2.0): not
    while others are taken out."""
    call = kept["torch"].nn.Module.__dict__["_call_impl"].__code__
    return any(frame.f_code is call for frame in sys._current_frames().values())


def inside():
    """Whether a thread is just running our code; where we have called a step(), or what is timed, we don't before it is
    back."""
    mine = _thread.get_ident()
    for thread, frame in sys._current_frames().items():
        innermost = True
        while frame is not None and thread != mine:
            code = frame.f_code
            if code.co_filename.startswith("<probefs torch") and (
                    innermost or code is not CODE and code is not TIMED):
                return True
            frame, innermost = frame.f_back, False
    return False


# ---- what the agent calls

def ready():
    """(errno or 0, words) of whether anything can be seen; then `kept` and `live` are as they should be."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 2, "this program has not imported torch (yet)"
    if not hasattr(torch, "optim") or not hasattr(torch, "autograd") or not hasattr(torch, "nn"):
        return 11, "torch is just being imported: try again"
    if "training" in live and live["training"].pid != os.getpid():
        stop()
    kept["torch"] = torch
    if steps_are_compiled():
        return 95, "torch.compile() has compiled an optimizer's step(), and would compile it anew"
    return 0, ""


def begin():
    """The training that is looked at from now on."""
    training = live.get("training")
    if training is None:
        training = live["training"] = Training(None)
    try:
        watch(live)
    except BaseException:
        stop()
        raise
    return training


def on(rate, layers):
    """Returns (errno or 0, words)."""
    global words
    error, said = ready()
    if error:
        return error, said
    interval = max(1, round(1 / rate))
    before, words = words, ""
    training = begin()
    training.interval, training.layers = interval, max(1, layers)
    every = "every step" if interval == 1 else f"steps whose number is a multiple of {interval}"
    return 0, f"{every}; {training.describe()}" + (f"; before, {before}" if before else "")


def profile(steps, _):
    """Returns (errno or 0, words)."""
    global words
    error, said = ready()
    if error:
        return error, said
    if "profile" in live or "writing" in live:
        return 16, "there is a profile already: " + (live.get("profile") or live["writing"]).describe()
    words = ""
    begin()
    live["profile"] = Profile(int(steps), live, fail, profiled)
    return 0, ""


def profiled(one):
    """In the thread that trains: a profile is over."""
    training = live.get("training")
    live.pop("profile", None)
    if training is not None and training.interval is None:
        stop()
    if training is not None and not training.leaving:
        written(one, live, fail)


def end_profile():
    """Ends one where its thread comes by soon. Whether there is none any more."""
    live.pop("writing", None)
    one = live.get("profile")
    if one is None:
        return True
    one.ending = "it was ended"
    if not one.on:
        live.pop("profile", None)
    return wait(lambda: one.on)


def forget_steps():
    """None is recorded any more."""
    training = live.get("training")
    if training is not None:
        training.interval = None
        wait(raising)
        step = live.pop("step", None)
        if step is not None:
            step.remove()
        training.step = None


def trace_off():
    """The same as off(), but for a profile."""
    if "profile" not in live and "writing" not in live:
        return off()
    forget_steps()
    return False, words


def profile_off():
    """The same as off(), but for the steps that are recorded."""
    training = live.get("training")
    if training is None or training.interval is None:
        return off()
    end_profile()
    return False, words


def off():
    """Returns (whether no thread is in our code any more, words). None comes in again, for `live` is empty, unless a
    profile runs whose thread doesn't come by: that ends the rest when it does."""
    training = live.get("training")
    if not end_profile() and training is not None:
        training.leaving = True
        forget_steps()
        return False, words
    wait(raising)
    stop()
    left = wait(inside)
    stop()
    if training is not None and training.step is not None:
        training.step.remove()
    return left, words
