"""The daemon's side of agent/wire/proto.h in Python, for tests: finds the agent of a process by its record,
takes its channel, speaks frames."""
import ctypes
import os
import pathlib
import select
import socket
import struct
import time

from interpreters import patience

HELLO, EVAL, TEXT, CANCEL, STATUS, DETACH, SWITCH, BREAKPOINTS = range(1, 9)
THREAD, ON_CRASH, ARMED, CRASH_SEEN, ALLOCATIONS, SAMPLES, RELEASE = range(9, 16)
READY, STARTED, OUTPUT, DONE, RINGS, WATCHES_CHANGED, CRASHED, HAPPENED = range(64, 72)
ON, OFF = 1, 2
LAST, ON_THREAD, IN_FRAME = 1, 2, 4
CUT, UNLOADABLE = 1, 2
INJECTED, IMPORTED, STARTUP, REMOTE_EXEC = range(1, 5)
IDLE, RUNNING, ENDED = range(3)
FRAME_MAX = 32768
MAGIC = 0x5346424F5250

VERSION = 14
HEADER = struct.Struct("=IHHQ")
READY_BODY = struct.Struct("=IIQQiiQQQ16s")
EVAL_BODY = struct.Struct("=QIIqQIIII")
BREAKPOINT = struct.Struct("=IIBBBBIQIIIIIIQQIIQQIIQ")
REPLACE = 16
HERE = 1  # flags of a breakpoint
REMOVE, LINE, FUNCTION, RETURN, RAISE, WATCH, WATCH_ADDRESS = range(1, 8)
LOG, STOP = range(2)
DONE_BODY = struct.Struct("=iIQQQ200s")
CRASHED_BODY = struct.Struct("=iiQ")
RECORD_BODY = struct.Struct("=IIIIQdqQ")
LOCALS = 1  # flags of RECORD
RECORD = struct.Struct("=QIIiiiiiiQQ")
STOPS = struct.Struct("=QIIIIQQQ")
SAMPLED = struct.Struct("=QQQ")  # where allocations, samples and pauses are
LEND = struct.Struct("=IiQ")
STOP_ENTRY = struct.Struct("=IiIIiIQQ")
STOPS_MAX = 1024
THREAD_BODY = struct.Struct("=IiiIQqQQQ")
CONTINUE, STEP, NEXT, FINISH, JUMP, PAUSE, TO_RETURN, UNTIL, STEP_OWN = range(1, 10)
BY_BREAKPOINT, BY_WATCH, BY_STEP, BY_RETURN, BY_PAUSE, BY_CRASH = range(1, 7)  # why a thread is stopped
WATCH_SLOT = struct.Struct("=IIQII")
WATCHES = 4
PLACE = struct.Struct("=IIiiQQd")
PLACES = 16
TABLES = sorted(t.stem for t in (pathlib.Path(__file__).parent.parent / "schema").glob("*.sql")
                if "-- source: recorded\n" in t.read_text())

DEADLINE = 30.0

_libc = ctypes.CDLL(None, use_errno=True)
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438


def _syscall(*args):
    got = _libc.syscall(*args)
    if got < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return got


def _symbol(library, name):
    """The file address of a dynamic symbol of a 64-bit ELF library."""
    data = pathlib.Path(library).read_bytes()
    offset, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    dynamic = next(s for s in sections if s[1] == 11)
    strings = sections[dynamic[6]][4]
    for at in range(dynamic[4], dynamic[4] + dynamic[5], 24):
        start, _, _, _, value, _ = struct.unpack_from("<IBBHQQ", data, at)
        end = data.index(b"\0", strings + start)
        if data[strings + start:end] == name.encode():
            return value
    raise LookupError(name)


class Record:
    """probe_agent_record of a process, read anew with read()."""

    def __init__(self, pid, library, name):
        """library: the file, for its symbols; name: how the name of its mapping ends."""
        self.pid = pid
        value = _symbol(library, "probe_agent_record")
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            fields = line.split()
            if len(fields) == 6 and fields[5].endswith(name) and fields[2] == "00000000":
                self.address = int(fields[0].split("-")[0], 16) + value
                break
        else:
            raise LookupError(f"{name} is not loaded in {pid}")

    def read(self):
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(self.address)
            (magic, self.version, self.size, self.state, self.owner, self.channel, self.origin,
             self.channel_tid, self.python_tid, self.handle, self.generation) = \
                RECORD.unpack(memory.read(RECORD.size))
            self.rings = {}
            for table, place in zip(TABLES, PLACE.iter_unpack(memory.read(PLACES * PLACE.size))):
                names = ("change", "on", "fd", "error", "inode", "size", "rate")
                self.rings[table] = dict(zip(names, place))
            (self.stops, self.stopped, self.on_crash, self.trap, _, self.own, self.evals,
             self.ring_bytes) = STOPS.unpack(memory.read(STOPS.size))
            self.watches = [dict(zip(("change", "id", "address", "length", "route"), watch))
                            for watch in WATCH_SLOT.iter_unpack(memory.read(WATCHES * WATCH_SLOT.size))]
        assert magic == MAGIC and self.size == RECORD.size + PLACES * PLACE.size + STOPS.size + \
            WATCHES * WATCH_SLOT.size + SAMPLED.size + LEND.size
        return self

    def threads(self):
        """The threads that are stopped: {tid: {...}}."""
        if not self.read().stops:
            return {}
        with open(f"/proc/{self.pid}/mem", "rb", buffering=0) as memory:
            memory.seek(self.stops)
            table = memory.read(STOPS_MAX * STOP_ENTRY.size)
        names = ("change", "tid", "why", "id", "line", "number", "since_ns", "until_ns")
        stops = [dict(zip(names, stop)) for stop in STOP_ENTRY.iter_unpack(table)]
        return {stop["tid"]: stop for stop in stops if stop["why"] and stop["change"] % 2 == 0}


def breakpoint(kind, where="", line=0, condition="", captures=(), text=None, id=0, action=LOG, route=0, address=0,
               length=0, count=0, stop_ns=0, location=None, after=0, every=0, within="", flags=0, thread=0, depth=0):
    """One entry of a BREAKPOINTS, struct proto_breakpoint and its words. text: made up, where none is given."""
    if location is None:
        location = {LINE: f"{where}:{line}", FUNCTION: f"{where}()", RETURN: f"return {where}()",
                    RAISE: f"raise {where}", WATCH: f"watch {where}"}.get(kind, "")
    if text is None and kind != REMOVE:
        text = f"{'stop' if action else 'log'} {location}" + (f" {{{', '.join(captures)}}}" if captures else "") + \
            (f" if {condition}" if condition else "") + (f" x {count}" if count else "")
    at = (text or "").find(location)
    words = [(text or "").encode(), where.encode(), condition.encode()]
    shown = b"".join(capture.encode() + b"\0" for capture in captures)
    data = b"".join(word + b"\0" for word in words) + shown
    data += within.encode() + b"\0"
    data += bytes(-len(data) % 8)
    return BREAKPOINT.pack(BREAKPOINT.size + len(data), id, kind, action, route, flags, line, address, length,
                           *map(len, words), len(shown), len(captures), count, stop_ns, max(at, 0),
                           len(location) if at >= 0 else 0, after, every, len(within), depth, thread) + data


class Gone(Exception):
    """The channel is over."""


class Answer:
    def __init__(self):
        self.started = False
        self.output = b""
        self.done = None  # (error, flags, consumed, wait_ns, run_ns, words)
        self.ready = None

    @property
    def error(self):
        return self.done[0]

    @property
    def flags(self):
        return self.done[1]

    @property
    def text(self):
        return self.output.decode()

    @property
    def words(self):
        return self.done[5]


class Client:
    """One conversation."""

    open = []  # those not yet closed

    def __init__(self, pid, library, name, hello=True):
        self.pid, self.record = pid, Record(pid, library, name)
        end = time.monotonic() + patience(DEADLINE)
        while self.record.read().channel < 0 or self.record.state != RUNNING:
            assert time.monotonic() < end, "no channel was published"
            time.sleep(0.001)
        pidfd = _syscall(_PIDFD_OPEN, pid, 0)
        try:
            fd = _syscall(_PIDFD_GETFD, pidfd, self.record.channel, 0)
        finally:
            os.close(pidfd)
        self.socket = socket.socket(fileno=fd)
        Client.open.append(self)
        self.answers, self.last_id, self.rings_told = {}, 0, 0
        self.crashed = []  # (signal, tid, address) of each
        if hello:
            self.nonce = int.from_bytes(os.urandom(7), "big")
            number = self.send(HELLO, struct.pack("=IIQ", VERSION, 0, self.nonce))
            self.hello = self.wait(number).ready
            assert self.hello["nonce"] == self.nonce

    def new_id(self):
        self.last_id += 1
        return self.last_id

    def send(self, op, body=b"", number=None):
        number = number or self.new_id()
        self.answers.setdefault(number, Answer())
        self.send_raw(HEADER.pack(HEADER.size + len(body), op, 0, number) + body)
        return number

    def send_raw(self, frame):
        try:
            self.socket.send(frame)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Gone from error

    def eval(self, text, **options):
        return self.wait(self.start(text, **options))

    def start(self, text, last=True, thread=0, depth=0, flags=0, interp=0, gil_interval=0,
              output_max=1 << 20):
        """Sends an EVAL and returns its id."""
        return self._start(EVAL, text.encode() if isinstance(text, str) else text, last, thread, depth, flags, interp,
                           gil_interval, output_max)

    def breakpoints(self, *entries, replace=False, here=0):
        return self.wait(self.start_breakpoints(*entries, replace=replace, here=here))

    def start_breakpoints(self, *entries, replace=False, here=0):
        """Sends a BREAKPOINTS of what breakpoint() makes and returns its id. here: the number of the open file."""
        return self._start(BREAKPOINTS, b"".join(entries), True, here, 0, REPLACE if replace else 0, 0, 0, 1 << 20)

    def _start(self, op, data, last, thread, depth, flags, interp, gil_interval, output_max):
        body = EVAL_BODY.pack(thread, depth, flags | (LAST if last else 0), interp, gil_interval,
                              len(data), output_max, 0, 0)
        room = FRAME_MAX - HEADER.size - len(body)
        number = self.send(op, body + data[:room])
        for at in range(room, len(data), FRAME_MAX - HEADER.size):
            self.send(TEXT, data[at:at + FRAME_MAX - HEADER.size], number)
        return number

    def switch(self, table, action=ON, **options):
        return self.wait(self.start_switch(table, action, **options))

    def start_switch(self, table, action=ON, size=0, rate=0.0, interp=0, gil_interval=0, flags=0):
        """Sends a RECORD and returns its id."""
        number = TABLES.index(table) if isinstance(table, str) else table
        return self.send(SWITCH, RECORD_BODY.pack(number, action, flags, 0, size, rate, interp, gil_interval))

    def order(self, verb, tid=0, **options):
        """Tells a stopped thread, or all, what to do."""
        return self.wait(self.start_order(verb, tid, **options))

    def start_order(self, verb, tid=0, line=0, seconds=0, interp=0, gil_interval=0, thread=0, here=0):
        return self.send(THREAD,
                         THREAD_BODY.pack(verb, tid, line, 0, int(seconds * 1e9), interp, gil_interval, thread, here))

    def release(self, here):
        """That open file is closed; there is no answer."""
        self.send_raw(HEADER.pack(HEADER.size + 8, RELEASE, 0, (1 << 64) - 1) + struct.pack("=Q", here))

    def cancel(self, number):
        self.send(CANCEL, b"", number)

    def status(self):
        return self.wait(self.send(STATUS)).ready

    def detach(self):
        return self.wait(self.send(DETACH))

    def receive(self, timeout=DEADLINE):
        """Takes one frame in."""
        if not select.select([self.socket], [], [], patience(timeout))[0]:
            raise TimeoutError
        try:
            frame = self.socket.recv(FRAME_MAX + 1)
        except ConnectionResetError as error:
            raise Gone from error
        if not frame:
            raise Gone
        size, op, zero, number = HEADER.unpack_from(frame)
        body = frame[HEADER.size:]
        assert size == len(frame) and zero == 0
        if op == RINGS:
            assert number == 0 and not body
            self.rings_told += 1
            return
        if op in (WATCHES_CHANGED, HAPPENED):
            assert number == 0 and not body
            return
        if op == CRASHED:
            assert number == 0
            self.crashed.append(CRASHED_BODY.unpack(body))
            return
        answer = self.answers[number]
        assert answer.done is None, "a frame after DONE"
        if op == STARTED:
            assert not answer.started and not answer.output
            answer.started = True
        elif op == OUTPUT:
            assert answer.started and body
            answer.output += body
        elif op == DONE:
            fields = DONE_BODY.unpack(body)
            answer.done = (*fields[:5], fields[5].split(b"\0")[0].decode())
        elif op == READY:
            names = ("version", "origin", "nonce", "since_ns", "channel_tid", "python_tid", "memory",
                     "rings", "evals", "agent_version")
            answer.ready = dict(zip(names, READY_BODY.unpack(body)))
        else:
            raise AssertionError(f"op {op} from the agent")

    def wait(self, number, timeout=DEADLINE):
        answer = self.answers[number]
        while answer.done is None and answer.ready is None:
            self.receive(timeout)
        return answer

    def wait_started(self, number):
        while not self.answers[number].started:
            self.receive()

    def close(self):
        if self in Client.open:
            Client.open.remove(self)
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
