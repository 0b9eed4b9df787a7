"""Tells probefs what a program does, where there is probefs; does nothing where there is not.

    import probing

    with probing.span("step", loss=0.1):    # a row of the table spans, with its duration
        ...

    @probing.span("load")                   # the same for each call: functions, methods, generators, async
    def load(): ...

    probing.event("saved", path="a.pt")     # a row of the table events
    probing.step()                          # one more "step" among them, numbered; step(42): that number
    probing.set_role(dp=1, tp=0)            # the column role: which part of a distributed job this is

    @probing.table                          # a dataclass: Loss(0.1, 7).save() is a row of events, and of Loss in SQL
    class Loss:
        value: float
        step: int

    @probing.attach_on_error()              # with IPDB_DEBUG=1: pdb where it raised, then the exception goes on;
    def train(): ...                        # IPDB_MODE=socket: nc -U /tmp/pdb.sock.RANK; console: rank 0; web: probefs

    probing.breakpoint(ranks=[0, 2])        # the same here, or what `breakpoint()` in the file breakpoints says

This file is for programs that are to run anywhere: put it beside them, or into them. It wants nothing
but Python 3.8, PyPy included. Until an agent of probefs is in the process (`echo attach > /probe/PID/ctl`) span() and
event() cost a call and do nothing; from then on they record, also where they were taken out of the module
before, and until it is detached. attach_on_error() and Debugger need no agent, but for IPDB_MODE=web.

Where `import probing` finds the module of probefs itself (meson's option -Dpython, which also starts an
agent) or an agent was put in that brings one along, this file isn't needed."""
import functools
import os
import sys

__all__ = ["span", "event", "start", "step", "set_role", "table", "attach_on_error", "breakpoint", "Debugger"]

_probefs_agent = None  # the agent's module; it sets this itself when it comes and goes


def _connect():
    """An agent that is here already stands at the end of sys.meta_path."""
    global _probefs_agent
    for finder in reversed(sys.meta_path):
        if type(finder) is type(sys) and finder.__name__ == "<probefs>":
            _probefs_agent = finder.create_module(None)
            return


class Span:
    """What span() makes while there is no agent; one that comes later records it."""

    __slots__ = ("name", "_attrs", "_open")

    def __init__(self, name, attrs):
        self.name, self._attrs, self._open = name, attrs, []

    def __enter__(self):
        agent = _probefs_agent
        real = agent.span(self.name, **self._attrs) if agent is not None else None
        if real is not None:
            real.__enter__()
        self._open.append(real)
        return self

    def __exit__(self, *exception):
        real = self._open.pop() if self._open else None
        if real is not None:
            real.__exit__(*exception)

    def _last(self):
        return self._open[-1] if self._open else None

    id = property(lambda self: getattr(self._last(), "id", None))
    parent = property(lambda self: getattr(self._last(), "parent", None))

    def _copy(self):
        return span(self.name, **self._attrs)

    def __call__(self, function):
        return _decorate(self._copy, function)


def span(name, /, **attrs):
    agent = _probefs_agent
    if agent is not None:
        return agent.span(name, **attrs)
    if not isinstance(name, str):
        raise TypeError('span() wants a name, a str; as in probing.span("step", loss=0.1)')
    return Span(name, attrs)


def event(name, /, **attrs):
    agent = _probefs_agent
    if agent is not None:
        agent.event(name, **attrs)
    elif not isinstance(name, str):
        raise TypeError('event() wants a name, a str; as in probing.event("step", loss=0.1)')


def start():
    """Starts the agent if it does not run, in a child after fork for instance."""
    agent = _probefs_agent
    if agent is None:
        raise OSError("there is no agent of probefs in this process: attach one, or install its module")
    agent.start()


# --- what follows the agent's own module executes this file for ---

_steps = 0


def step(number=None, /, **attrs):
    """Says that a step begins: an event "step" with its number, one more than the last one's or that one. Returns
    it."""
    global _steps
    _steps = _steps + 1 if number is None else int(number)
    event("step", step=_steps, **attrs)
    return _steps


def set_role(**parts):
    """Says which part of a distributed job this process is: the column role, "dp=1,tp=0". It stands in the environment,
    as PROBING_DP_RANK=1, and so children that begin later have it, too. None takes one out."""
    for name, rank in parts.items():
        if not name.isalnum() or not name.isascii() or rank is not None and (type(rank) is not int or rank < 0):
            raise ValueError(f"set_role() wants numbers from 0 on: set_role(dp=1, tp=0), not {name}={rank!r:.100}")
    for name, rank in parts.items():
        if rank is None:
            os.environ.pop(f"PROBING_{name.upper()}_RANK", None)
        else:
            os.environ[f"PROBING_{name.upper()}_RANK"] = str(rank)


def _save(row):
    event(type(row).__name__, **{name: getattr(row, name) for name in row.__dataclass_fields__})


def table(cls):
    """Gives a class, which becomes a dataclass unless it is one, a method save(): a row of events with the class's
    name, and its fields as attrs."""
    if "__dataclass_fields__" not in vars(cls):
        import dataclasses
        cls = dataclasses.dataclass(cls)
    cls.save = _save
    return cls


_GENERATOR, _COROUTINE, _ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x100, 0x200  # inspect.CO_*


def _flags(function):
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return getattr(code, "co_flags", 0)


def _plain(span, function):
    def wrapper(*args, **kwargs):
        with span():
            return function(*args, **kwargs)
    return wrapper


def _generator(span, function):
    def wrapper(*args, **kwargs):
        with span():
            return (yield from function(*args, **kwargs))
    return wrapper


def _coroutine(span, function):
    async def wrapper(*args, **kwargs):
        with span():
            return await function(*args, **kwargs)
    return wrapper


def _async_generator(span, function):
    async def wrapper(*args, **kwargs):
        with span():
            inner = function(*args, **kwargs)
            try:
                step = inner.__anext__()
                while True:
                    try:
                        value = await step
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield value
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        step = inner.athrow(error)
                    else:
                        step = inner.asend(sent)
            finally:
                await inner.aclose()
    return wrapper


def _decorate(span, function):
    """span() makes a span; each call needs one of its own."""
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_decorate(span, function.__func__))
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"span() decorates functions, not {function!r:.100}")
    flags = _flags(function)
    if flags & (_COROUTINE | _ITERABLE_COROUTINE):
        make = _coroutine
    elif flags & _ASYNC_GENERATOR:
        make = _async_generator
    else:
        make = _generator if flags & _GENERATOR else _plain
    return functools.update_wrapper(make(span, function), function)


# --- pdb in the process, where IPDB_DEBUG=1 asks for it ---


class Debugger:
    """What IPDB_DEBUG and IPDB_MODE say; a program may say something else."""

    debug_flag = os.environ.get("IPDB_DEBUG", "").lower() in ("1", "true", "yes", "on")
    debug_mode = os.environ.get("IPDB_MODE", "socket")  # or "console", "web"

    @staticmethod
    def attach_on_error():
        return attach_on_error()

    @staticmethod
    def blocking_console_post_mortem(rank=None):
        """For the exception that is being handled; rank: as whose, else this process's."""
        if sys.exc_info()[1] is not None:
            _post_mortem(sys.exc_info()[1], rank)


class attach_on_error:
    """A decorator, for functions of all kinds, and a context: with Debugger.debug_flag an Exception is looked at where
    it was raised, once, and goes on then."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        ends = isinstance(error, (StopIteration, StopAsyncIteration))
        if Debugger.debug_flag and isinstance(error, Exception) and not ends:
            _post_mortem(error)

    def __call__(self, function):
        return _decorate(attach_on_error, function)


def _rank():
    """As torch.distributed has it, if that has begun; else the launcher."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank()
    except Exception:
        pass
    for name in "RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK":
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def _limit():
    """For how many seconds a rank waits at most."""
    words = os.environ.get("PROBING_ON_CRASH", "").partition(":")[2]
    number, unit = words.rstrip("smhd"), words[-1:]
    try:
        return min(float(number) * {"m": 60, "h": 3600, "d": 86400}.get(unit, 1), 7 * 86400.0)
    except ValueError:
        return 600.0


def _say(words):
    try:
        print("probing:", words, file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass  # there is nothing to say it to


def _post_mortem(error, rank=None):
    """Returns when whoever looked at it has left, or nobody came in time. Not a second time for the same exception."""
    if getattr(error, "_probing_seen", False):
        return
    try:
        error._probing_seen = True
    except (AttributeError, TypeError):
        pass  # it takes no attributes
    rank = _rank() if rank is None else rank
    what = f"[rank {rank}] {type(error).__name__}: {error}"[:500]
    if Debugger.debug_mode == "socket":
        _Served(rank, what).serve(error.__traceback__)
    elif Debugger.debug_mode == "console" and rank == 0:
        import pdb
        _say(what)
        pdb.post_mortem(error.__traceback__)
    else:
        _hold(error, what)


def _hold(error, what):
    """Waits without a terminal: held by the agent, if there is one, so that it can be looked at by the files."""
    hold = getattr(_probefs_agent, "_hold", None)
    if hold is not None and hold(error):
        return
    if Debugger.debug_mode == "web":
        return _say(f"{what}; nobody can look at it: there is no agent of probefs here, PROBING=1 brings one along")
    import threading
    _say(f"{what}; waits for {_limit():g} s")
    threading.Event().wait(_limit())


def _listener(rank):
    """At TMP/pdb.sock.RANK, for this user alone; beside it, if another process listens there."""
    import errno
    import socket
    import tempfile
    path = f"{tempfile.gettempdir()}/pdb.sock.{rank}"
    for path in path, f"{path}.{os.getpid()}":
        # of the wrong type: whoever listens there isn't called
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            error = other.connect_ex(path)
        if error not in (errno.ENOENT, errno.ECONNREFUSED):
            continue
        listener = socket.socket(socket.AF_UNIX)
        try:
            os.fchmod(listener.fileno(), 0o600)  # which bind() makes it with
            made = f"{path}.{os.getpid()}.new"
            listener.bind(made)
            listener.listen(1)
            os.rename(made, path)  # in the place of one that has ended; whoever sees it can connect
            return listener, path
        except OSError:
            listener.close()
            raise
    raise OSError(f"somebody listens at {path}")


class _Served:
    """One pdb, for who connects to its socket."""

    def __init__(self, rank, what):
        self.rank, self.what, self.streams = rank, what, []

    def accept(self):
        """Whether somebody came: this user, or root."""
        import socket
        import struct
        import time
        end = time.monotonic() + _limit()
        try:
            listener, path = _listener(self.rank)
        except OSError as error:
            _say(f"{self.what}; no socket for pdb: {error}")
            return False
        _say(f"{self.what}; for {_limit():g} s: nc -U {path}")
        try:
            while True:
                listener.settimeout(max(end - time.monotonic(), 0.001))
                connection, _ = listener.accept()
                _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                if uid in (0, os.geteuid()):
                    break
                connection.close()
        except socket.timeout:
            _say(f"{self.what}; nobody came, it goes on")
            return False
        finally:
            listener.close()
            try:
                os.unlink(path)
            except OSError:
                pass
        connection.settimeout(_limit())
        self.streams = [connection.makefile(mode, encoding="utf-8", errors="replace") for mode in "rw"]
        connection.close()  # once these are closed
        self.streams[1].write(f"{self.what}\n")
        return True

    def close(self):
        streams, self.streams = self.streams, []
        for stream in streams:
            try:
                stream.close()
            except OSError:
                pass

    def serve(self, traceback):
        """Whoever loses the connection may come back; q and c end it."""
        lost = True
        while lost and self.accept():
            debugger = _pdb()(self, over=True)
            debugger.reset()
            debugger.interaction(None, traceback)
            lost = debugger.lost
            self.close()


def _pdb():
    import pdb
    import socket

    class Pdb(pdb.Pdb):
        """over: nothing goes on from where it is; else it holds a program that does."""

        def __init__(self, served, over=False):
            super().__init__(stdin=served.streams[0], stdout=served.streams[1], nosigint=True, readrc=False)
            self.prompt = f"(rank-{served.rank}-pdb) "
            self.served, self.over, self.lost = served, over, False

        def interaction(self, *where):
            try:
                return super().interaction(*where)
            except OSError as error:  # the connection is lost, or nobody has said anything for long
                self.lost = not isinstance(error, socket.timeout)
                if not self.over:
                    self.clear_all_breaks()
                    self.do_continue("")

        def do_continue(self, argument):
            if self.over:
                return True
            result = super().do_continue(argument)
            if not self.breaks:
                self.served.close()
            return result
        do_c = do_cont = do_continue

        def do_quit(self, argument):
            if self.over:
                return True
            result = super().do_quit(argument)
            self.served.close()
            return result
        do_q = do_exit = do_quit

        def do_EOF(self, argument):
            self.lost = True
            if not self.over:
                self.clear_all_breaks()
            return self.do_continue(argument)

    return Pdb


def breakpoint(ranks=None):
    """Stops here, in these ranks; in all of them, without. While `breakpoint()` is set in the file `breakpoints` that
    says what happens, else IPDB_DEBUG and IPDB_MODE; else nothing does."""
    rank = _rank()
    if ranks is not None and rank not in ([ranks] if isinstance(ranks, int) else ranks):
        return
    if getattr(sys.breakpointhook, "__name__", "") == "probefs_breakpointhook":
        sys.breakpointhook(otherwise=bool)  # which does nothing
    elif Debugger.debug_flag:
        frame = sys._getframe(1)
        what = f"[rank {rank}] {frame.f_code.co_filename}:{frame.f_lineno}"
        served = _Served(rank, what)
        if Debugger.debug_mode == "console" and rank == 0:
            import pdb
            pdb.Pdb().set_trace(frame)
        elif Debugger.debug_mode == "socket" and served.accept():
            _pdb()(served).set_trace(frame)
        elif Debugger.debug_mode != "socket":
            _say(f"{what}; it goes on: `stop breakpoint()` in its file breakpoints would hold it")


if __name__ != "<probefs>":
    _connect()
