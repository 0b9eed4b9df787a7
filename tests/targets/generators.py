"""Generators, coroutines and asynchronous generators, suspended and running, down to a lock."""
import functools
import threading

import oracle


def leaf():
    oracle.park()
    yield 1


def delegating():
    yield from leaf()


def looping():
    for value in delegating():
        yield value


class Awaitable:
    def __await__(self):
        return (yield from looping())


async def innermost():
    return await Awaitable()


async def stream():
    yield await innermost()


async def middle():
    async for value in stream():
        return value


def drive():
    coroutine = middle()
    coroutine.send(None)


def suspended():
    yield from (delegating() for _ in range(2))


waiting = suspended()
next(waiting)  # a frame that is on nobody's stack
threading.current_thread().name = "driver"
functools.partial(drive)()
