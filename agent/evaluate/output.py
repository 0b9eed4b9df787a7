"""Catching what evaluated code prints, and nothing else.

A context variable says in whose evaluation code runs; the streams in sys look at it (stream.py).
"""
import sys
from _codecs import lookup_error, register_error
from _io import BytesIO, UnsupportedOperation

Context, ContextVar = _probe.Context, _probe.ContextVar  # their module may be a file that can't be found
STREAMS = "probefs streams"  # no error handler at all: see stream.py
current = ContextVar("probe", default=None)  # the Sink of the evaluation in whose context this runs


class Sink:
    """The first `limit` bytes of what is written to it."""
    __slots__ = "data", "limit", "cut", "open"

    def __init__(self, limit):
        self.data = bytearray()
        self.limit = limit
        self.cut = False   # something was dropped
        self.open = True   # False: the evaluation is over, late writers mean the program's stream

    def add(self, data):
        if self.cut:
            return
        room = self.limit - len(self.data)
        if len(data) > room:
            self.cut = True
            data = clip(data, room)
        self.data += data

    def write(self, text):
        if not self.cut:
            self.add(text[:self.limit - len(self.data) + 1].encode("utf-8", "backslashreplace"))

    def end(self, data):
        """Adds data at the end, at the cost of what came before."""
        data = clip(data, self.limit)
        if len(self.data) + len(data) > self.limit:
            self.cut = True
            self.data = clip(self.data, self.limit - len(data))
        self.data += data


def clip(data, size):
    """At most size bytes of UTF-8, no character cut."""
    if len(data) <= size:
        return data
    while size and data[size] & 0xC0 == 0x80:
        size -= 1
    return data[:size]


class Standin:
    """What code gets for one of the program's streams, whose methods it can't close or detach. What
    isn't defined here is the program's, its class too."""
    closed = False

    def __init__(self, sink, own):
        self._sink, self._own = sink, own

    @property
    def __class__(self):
        return type(self) if self._own is None else self._own.__class__

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        pass

    def flush(self):
        pass

    close = flush

    def isatty(self):
        return False

    def fileno(self):
        raise UnsupportedOperation("fileno")

    def detach(self):
        raise UnsupportedOperation("detach")

    def reconfigure(self, **_):
        pass

    def __getattr__(self, name):
        return getattr(self._own, name)


class Buffer(Standin):
    """sys.stdout.buffer inside an evaluation."""
    mode = "wb"

    @property
    def raw(self):
        return self

    def write(self, data):
        data = memoryview(data).tobytes()
        if not self._sink.open:
            return self._own.write(data)
        self._sink.add(data)
        return len(data)

    def writable(self):
        return True


class Output(Standin):
    """sys.stdout or sys.stderr inside an evaluation: not a terminal, and without a descriptor, by
    which a child process would write to the program's own output."""
    encoding = "utf-8"
    errors = "backslashreplace"
    line_buffering = False
    newlines = None

    def write(self, text):
        if not self._sink.open:
            return self._own.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._sink.write(text)
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    @property
    def buffer(self):
        return Buffer(self._sink, getattr(self._own, "buffer", None))

    def writable(self):
        return True


class Input(Standin):
    """sys.stdin inside an evaluation: at its end, for nobody sits there, and the program may be
    waiting for what comes."""
    def read(self, size=-1):
        return ""

    readline = read

    def readlines(self, hint=-1):
        return []

    def __iter__(self):
        return iter(())

    @property
    def buffer(self):
        return BytesIO()


STANDARD = {"stdin": Input, "stdout": Output, "stderr": Output}


def find_streams():
    """The namespace of stream.py."""
    try:
        return lookup_error(STREAMS).__globals__
    except LookupError:
        space = {"__name__": "<probefs stream>"}
        for part in _probe.stream_source:
            exec(compile(part, "<probefs stream>", "exec"), space)
        register_error(STREAMS, space["behind"])
        return space


def evaluation(name, own):
    sink = current.get()
    if sink is None or not sink.open:
        return None
    return STANDARD[name](sink, own)


streams = find_streams()
streams["evaluation"] = evaluation


def install():
    streams["install"](STANDARD)


def restore():
    """Gives the standard streams back to the program."""
    streams["restore"](STANDARD)


def inside(sink, function, *arguments):
    """Calls it in a new context, whose output goes to sink."""
    context = Context()
    context.run(current.set, sink)
    return context.run(function, *arguments)


ROOM = 200  # calls in one another that our own code has where it formats, at least


def roomy(function, *arguments):
    """Calls what is our own, also in a program that allows very few calls in one another."""
    limit = sys.getrecursionlimit()
    if limit >= ROOM:
        return function(*arguments)
    sys.setrecursionlimit(ROOM)
    try:
        return function(*arguments)
    finally:
        sys.setrecursionlimit(limit)
