"""PyTorch's own profiler, for some steps of a training loop that never heard of us.

It is one of a thread: it begins and ends where that has just made an optimizer's step. It ends early, in that
thread, too, at the first call of a module after a while, and before the program does what a running profiler would
disturb: using the profiler itself, or forking a child, which would go on with it. For the steps that are left it
begins anew at the next one.

What it has seen becomes rows in a thread of our own, which gets a turn as any other: many events take a while."""
import os
import sys
import _thread
from time import perf_counter, sleep, time
from types import FunctionType

SECONDS_MAX = 10.0   # from its beginning on
EVENTS_MAX = 100000  # that become rows, of all its steps together
TURNS_MAX = 1000     # that it waits for the program's own profile to end
EVENTS_AT_ONCE = 500 # before others get a turn


def unit_of(event):
    """(when it began, how long it took), [s] since 1970: nanoseconds since 2.3."""
    start = getattr(event, "start_ns", None)
    if start is not None:
        return start() * 1e-9, event.duration_ns() * 1e-9
    return event.start_us() * 1e-6, event.duration_us() * 1e-6


class Profile:
    """live: as in trace.py. end: called in the thread that it ran in, once all is over."""
    runs = 0

    def __init__(self, steps, live, fail, end):
        self.live, self.fail, self.over = live, fail, end
        self.left = self.steps = steps
        self.on = False        # PyTorch's profiler runs
        self.ended = False
        self.ending = None     # why it is to end; None: it isn't
        self.thread = self.deadline = None
        self.turns = 0         # that it waited
        self.marks = []        # (number of a step, when it began, when it ended)
        self.results = []
        self.handle = None     # of our hook on modules
        self.guarded = []      # (module, name, what stood there, ours)
        Profile.runs += 1
        self.run = Profile.runs

    # ---- what the thread that trains calls

    def turn(self, count):
        """An optimizer has just made the step whose number count() is; asking for that may be an operator, too."""
        if self.ended or self.thread not in (None, _thread.get_ident()):
            return
        now = time()
        if self.on:
            self.number += 1
            self.marks.append((self.number, self.begun, now))
            self.left -= 1
            self.begun = now
        if not self.left or self.ending or self.late():
            self.end()
        elif not self.on:
            self.number = count()
            self.begin()

    def late(self):
        return self.deadline is not None and perf_counter() > self.deadline

    def begin(self):
        autograd = kept["torch"].autograd
        if autograd._profiler_enabled():  # the program's own
            self.turns += 1
            if self.turns >= TURNS_MAX:
                self.ending = "the program has its own profiler running all the time"
                self.end()
            return
        made = self.profiler()
        self.thread = _thread.get_ident()
        if self.deadline is None:
            self.deadline = perf_counter() + SECONDS_MAX
        self.guard()
        made._prepare_trace()
        made._start_trace()
        self.on, self.begun = True, time()

    def profiler(self):
        """Not entered yet. It knows the GPU if the program uses that."""
        profile = kept["torch"].autograd.profiler.profile
        cuda = getattr(kept["torch"], "cuda", None)
        options = {}
        if cuda is not None and cuda.is_initialized():
            known = profile.__init__.__code__.co_varnames
            options = {"use_device": "cuda"} if "use_device" in known else {"use_cuda": True}
        return profile(use_kineto=True, **options)

    def interrupt(self):
        """PyTorch's profiler ends now, if this is its thread; a step that has begun isn't seen."""
        if self.on and _thread.get_ident() == self.thread:
            self.on = False
            self.unguard()
            self.results.append(kept["torch"].autograd._disable_profiler())

    def look(self):
        """A module is called."""
        if (self.ending or self.late()) and _thread.get_ident() == self.thread:
            self.end()

    def end(self):
        self.interrupt()
        if not self.ended:
            self.ended = True
            self.over(self)

    # ---- what the program would be disturbed in

    def guard(self):
        live, fail, mine = self.live, self.fail, self

        def guarded(original):
            def before(*args, **kwargs):
                profile = live.get("profile")
                if profile is not None:
                    try:
                        profile.interrupt()
                    except Exception as problem:
                        fail(problem)
                return original(*args, **kwargs)
            return before

        def called(module, args):
            profile = live.get("profile")
            if profile is not None:
                try:
                    profile.look()
                except Exception as problem:
                    fail(problem)
        autograd = kept["torch"].autograd
        legacy = sys.modules.get("torch.autograd.profiler_legacy")
        for module, name in ((autograd.profiler, "_prepare_profiler"), (autograd.profiler, "_enable_profiler"),
                             (legacy, "_enable_profiler_legacy"), (os, "fork")):
            original = getattr(module, name, None)
            if original is not None:
                ours = guarded(original)
                self.guarded.append((module, name, original, ours))
                setattr(module, name, ours)
        if not dynamo_is_used():
            self.handle = kept["torch"].nn.modules.module.register_module_forward_pre_hook(called)

    def unguard(self):
        guarded, self.guarded = self.guarded, []
        for module, name, original, ours in guarded:
            if getattr(module, name, None) is ours:
                setattr(module, name, original)
        handle, self.handle = self.handle, None
        if handle is not None:
            handle.remove()

    # ---- what it has seen

    def describe(self):
        if not self.ended:
            return f"{self.left} of {self.steps} steps to come"
        return f"{len(self.marks)} steps" + (f", then {self.ending}" if self.ending else "")

    def row(self, begun, duration, thread, device, kind, name):
        _probe.profile_row(begun, self.run, thread, device, kind, name, duration)

    def write(self):
        """Rows of all of it, as long as they are wanted."""
        results, self.results = self.results, []
        for number, begun, ended in self.marks:
            self.row(begun, ended - begun, 0, "cpu", "step", str(number))
        written = seen = 0
        for result in results:
            for event in result.events():
                seen += 1
                if written >= EVENTS_MAX:
                    continue
                begun, duration = unit_of(event)
                kind = event.device_type().name.lower()
                on_cpu = kind == "cpu"
                self.row(begun, duration, event.start_thread_id() if on_cpu else event.device_resource_id(),
                         kind if on_cpu else f"{kind}:{event.device_index()}", "op", event.name())
                written += 1
                if written % EVENTS_AT_ONCE == 0:
                    sleep(0)
                    if self.live.get("writing") is not self:
                        return
        if seen > written:
            _probe.profile_lose(seen - written)


def written(profile, live, fail):
    """Has its rows written by a thread of ours; here, where there can be none."""
    def write():
        try:
            if live.get("writing") is profile:
                profile.write()
                if live.get("writing") is profile:
                    _probe.profile_done()
        except Exception as problem:
            fail(problem)
        finally:
            if live.get("writing") is profile:
                live.pop("writing", None)
    live["writing"] = profile
    try:
        _thread.start_new_thread(write, ())
    except RuntimeError:
        write()
