"""Tells probefs what a program does, where there is probefs; does nothing where there is not.

    import probing

    with probing.span("step", loss=0.1):    # a row of the table spans, with its duration
        ...

    @probing.span("load")                   # the same for each call: functions, methods, generators, async
    def load(): ...

    probing.event("saved", path="a.pt")     # a row of the table events
    probing.step()                          # one more "step" among them, numbered; step(42): that number
    probing.set_role(dp=1, tp=0)            # the column role: which part of a distributed job this is

    @probing.table                          # a dataclass: Loss(0.1, 7).save() is a row of events called "Loss"
    class Loss:
        value: float
        step: int

This file is for programs that are to run anywhere: put it beside them, or into them. It wants nothing
but Python 3.8, PyPy included. Until an agent of probefs is in the process (`echo attach > /probe/PID/ctl`) span() and
event() cost a call and do nothing; from then on they record, also where they were taken out of the module
before, and until it is detached.

Where `import probing` finds the module of probefs itself (meson's option -Dpython, which also starts an
agent) or an agent was put in that brings one along, this file isn't needed."""
import functools
import os
import sys

__all__ = ["span", "event", "start", "step", "set_role", "table"]

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
    """Says that a step begins: an event "step" with its number, one more than the last one's or that one. Returns it."""
    global _steps
    _steps = _steps + 1 if number is None else int(number)
    event("step", step=_steps, **attrs)
    return _steps


def set_role(**parts):
    """Says which part of a distributed job this process is: the column role, "dp=1,tp=0". It stands in the environment, as
    PROBING_DP_RANK=1, and so children that begin later have it, too. None takes one out."""
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
    """Gives a class, which becomes a dataclass unless it is one, a method save(): a row of events with the class's name, and
    its fields as attrs."""
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


if __name__ != "<probefs>":
    _connect()
