"""When something began and ended: on the processor, or on the GPU.

The files of this folder record the steps of a PyTorch training loop that never heard of us. The agent executes them in
one private namespace (agent/record/torch/torch.c says in which order), which holds `_probe` already: the part of this
that is in C. What runs in the program's threads begins in closures that know nothing of that namespace but what `live`
gives them, since it may be emptied at any time (trace.py).

_probe.row(ts, step, seq, module, stage, time_offset, duration, allocated, max_allocated, cached, max_cached)
writes a row and returns a ticket, by which _probe.complete(ticket, time_offset, duration) completes it later.
None is NULL."""
from time import perf_counter, time

NO_MEMORY = None, None, None, None


class Clock:
    """The processor's time less what was spent on recording, for the rows of one step. A moment is a
    number of seconds."""

    def __init__(self, number):
        self.number = number
        self.spent = 0.0
        self.ts = time()
        self.begun = self.now()

    def now(self, at=None):
        """at: when that is, else now. What is said after something was spent is never before it."""
        return (perf_counter() if at is None else at) - self.spent

    def memory(self):
        return NO_MEMORY

    def row(self, seq, module, stage, begin, end):
        offset = begin - self.begun
        _probe.row(self.ts + offset + self.spent, self.number, seq, module, stage, offset, end - begin,
                   *self.memory())

    def took(self, seq):
        """What recording took of the step: of the processor, on a GPU's clock, too."""
        offset = perf_counter() - self.spent - (self.begun if type(self.begun) is float else self.begun[0])
        _probe.row(self.ts + offset, self.number, seq, None, "recording", offset, self.spent, *NO_MEMORY)

    def settle(self):
        """Whether nothing is left to be completed."""
        return True


class DeviceClock(Clock):
    """The time of the GPU, which works behind the program's back: a moment is (seconds on the
    processor, event), the event being put among the work that the GPU is to do. It is asked for its time only
    when it has passed, so that nobody waits."""

    pool = {}  # device -> events that may be used again

    def __init__(self, number):
        self.cuda = kept["torch"].cuda
        self.used = []     # (device, event)
        self.pending = []  # (ticket, event, event)
        super().__init__(number)

    def now(self, at=None):
        cuda, event = self.cuda, None
        if not cuda.is_current_stream_capturing():  # it would become a part of the graph
            device = cuda.current_device()
            free = self.pool.get(device)
            event = free.pop() if free else cuda.Event(enable_timing=True)
            event.record()
            self.used.append((device, event))
        return super().now(at), event

    def memory(self):
        stats = self.cuda.memory_stats_as_nested_dict()
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return allocated["current"], allocated["peak"], reserved["current"], reserved["peak"]

    def row(self, seq, module, stage, begin, end):
        offset = begin[0] - self.begun[0]
        ticket = _probe.row(self.ts + offset + self.spent, self.number, seq, module, stage, None, None,
                            *self.memory())
        if ticket is not None and begin[1] is not None and end[1] is not None:
            self.pending.append((ticket, begin[1], end[1]))

    def settle(self):
        """Completes the rows, all of them or none. Never waits."""
        if self.cuda.is_current_stream_capturing():
            return False
        for _, event in reversed(self.used):  # the last one is the one to be waited for, mostly
            if not event.query():
                return False
        for ticket, begin, end in self.pending:
            if begin.device == end.device:
                same = self.begun[1] is not None and self.begun[1].device == begin.device
                offset = self.begun[1].elapsed_time(begin) / 1e3 if same else None
                _probe.complete(ticket, offset, begin.elapsed_time(end) / 1e3)
        for device, event in self.used:
            self.pool.setdefault(device, []).append(event)
        self.used, self.pending = [], []
        return True


def clock_for(optimizer, number):
    """A clock that runs now."""
    cuda = getattr(kept["torch"], "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return Clock(number)
    parameter = first_parameter(optimizer)
    return DeviceClock(number) if parameter is not None and parameter.is_cuda else Clock(number)
