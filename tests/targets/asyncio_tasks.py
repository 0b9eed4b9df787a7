"""A victim with asyncio tasks, and what it says of them itself.

asyncio_tasks.py [--then FUNCTION] CASE... starts what the cases (functions below) start, in one
event loop, and waits until it has come to rest. Then it prints "ready" and a line of JSON, what
asyncio.all_tasks() has, and waits for ever, or calls the function.
"""
import asyncio
import json
import os
import sys
import threading
import time


def link(awaitable):
    """What a coroutine, generator or asynchronous generator awaits, and its frame."""
    for prefix, awaits in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
        if hasattr(awaitable, prefix + "_frame"):
            return getattr(awaitable, prefix + "_frame"), getattr(awaitable, awaits)
    return None, None


def chain(awaitable, source):
    """[(qualified name, file, line), ...], outermost first, as far as Python code can see it: what
    an asynchronous generator gives to await on doesn't tell whose it is, so that the case does."""
    said = []
    while awaitable is not None:
        if type(awaitable).__name__ in ("async_generator_asend", "anext_awaitable"):
            awaitable = source
        frame, awaits = link(awaitable)
        if frame is None:
            break
        said.append((frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno))
        awaitable = awaits
    return said


def describe(task, source):
    return {"address": id(task), "name": task.get_name(), "coro": getattr(task.get_coro(), "__qualname__", None),
            "frames": chain(task.get_coro(), source), "cancelling": task.cancelling() > 0}


# ---- cases: each starts tasks that come to rest, and returns the asynchronous generator ----

async def innermost(event):
    await event.wait()


async def middle(event):
    await innermost(event)


async def outer(event):
    return await middle(event)


async def nested():
    event = asyncio.Event()
    keep(asyncio.create_task(outer(event), name="nested"))


async def worker(event):
    await event.wait()


async def gatherer(event):
    await asyncio.gather(*(asyncio.create_task(worker(event), name=f"gathered-{i}")
                           for i in range(3)))


async def gather():
    keep(asyncio.create_task(gatherer(asyncio.Event()), name="gatherer"))


async def inner_gatherer(event):
    a = asyncio.gather(asyncio.create_task(worker(event), name="deep-0"),
                       asyncio.create_task(worker(event), name="deep-1"))
    await asyncio.gather(a, asyncio.create_task(worker(event), name="shallow"))


async def gather_of_gather():
    keep(asyncio.create_task(inner_gatherer(asyncio.Event()), name="gather-of-gather"))


async def grouper(event):
    async with asyncio.TaskGroup() as group:
        for i in range(3):
            group.create_task(worker(event), name=f"grouped-{i}")


async def group():
    keep(asyncio.create_task(grouper(asyncio.Event()), name="grouper"))


async def waiting(event):
    await asyncio.wait_for(worker(event), 1000)


async def wait_for():
    keep(asyncio.create_task(waiting(asyncio.Event()), name="wait-for"))


async def waiter(event):
    await asyncio.wait([asyncio.create_task(worker(event), name=f"waited-{i}") for i in range(2)])


async def wait():
    keep(asyncio.create_task(waiter(asyncio.Event()), name="waiter"))


async def shielder(event):
    await asyncio.shield(asyncio.create_task(worker(event), name="shielded"))


async def shield():
    keep(asyncio.create_task(shielder(asyncio.Event()), name="shielder"))


async def call(function, keep_result):
    """What a function returns is for others to await."""
    keep_result(function())
    await asyncio.Event().wait()


async def handed():
    event, results = asyncio.Event(), []
    tasks = {name: [asyncio.create_task(worker(event), name=f"{name}-{i}") for i in range(2)]
             for name in ("gathered", "dropped", "shielded", "completed")}
    for name, function in [("gather-caller", lambda: asyncio.gather(*tasks["gathered"])),
                           ("shield-caller", lambda: asyncio.shield(tasks["shielded"][0])),
                           ("completed-caller", lambda: next(iter(asyncio.as_completed(tasks["completed"])))),
                           ("dropper", lambda: asyncio.gather(*tasks["dropped"]))]:
        keep(asyncio.create_task(call(function, results.append), name=name))
    await asyncio.sleep(0)
    for name, result in zip(("gather", "shield", "completed"), results):
        keep(asyncio.create_task(joiner(result), name=f"{name}-joiner"))
    keep(tasks)
    keep(results)


async def collector(event):
    for earliest in asyncio.as_completed([asyncio.create_task(worker(event), name=f"collected-{i}")
                                          for i in range(3)]):
        await earliest


async def as_completed():
    keep(asyncio.create_task(collector(asyncio.Event()), name="collector"))


async def aging():
    for name in "zebra", "yak", "ant", "bee":
        keep(asyncio.create_task(sleeper(), name=name))


async def numbers(event):
    yield 1
    await event.wait()
    yield 2


async def iterate(source):
    async for _ in source:
        pass


async def async_generator():
    source = numbers(asyncio.Event())
    keep(asyncio.create_task(iterate(source), name="iterator"))
    return source


async def joiner(task):
    await task


async def shared():
    task = asyncio.create_task(worker(asyncio.Event()), name="shared")
    keep(task)
    for i in range(2):
        keep(asyncio.create_task(joiner(task), name=f"joiner-{i}"))


async def circle():
    tasks = {}

    async def await_other(name):
        await asyncio.sleep(0)
        await tasks[name]
    tasks["a"] = asyncio.create_task(await_other("b"), name="circle-a")
    tasks["b"] = asyncio.create_task(await_other("a"), name="circle-b")
    keep(tasks)


async def locker(lock):
    async with lock:
        pass


async def getter(queue):
    await queue.get()


async def sleeper():
    await asyncio.sleep(1000)


async def resting():
    lock = asyncio.Lock()
    await lock.acquire()
    keep(asyncio.create_task(locker(lock), name="on-lock"))
    keep(asyncio.create_task(getter(asyncio.Queue()), name="on-queue"))
    keep(asyncio.create_task(sleeper(), name="on-sleep"))


async def names():
    for name in ("größe", "日本語", "🦆", "a b", "new\nline", "x" * 300):
        keep(asyncio.create_task(sleeper(), name=name))
    keep(asyncio.create_task(sleeper()))  # named by its number, not yet formatted


async def stubborn(event):
    try:
        await event.wait()
    except asyncio.CancelledError:
        await event.wait()


async def cancelled():
    task = asyncio.create_task(stubborn(asyncio.Event()), name="stubborn")
    keep(task)
    await asyncio.sleep(0)
    task.cancel()
    gone = asyncio.create_task(sleeper(), name="gone")
    keep(gone)
    await asyncio.sleep(0)
    gone.cancel()
    keep(asyncio.create_task(asyncio.sleep(0), name="done"))


async def eager():
    keep(asyncio.Task(outer(asyncio.Event()), loop=asyncio.get_running_loop(), eager_start=True,
                      name="eager"))


class Subclass(asyncio.Task):
    pass


async def subclass():
    keep(Subclass(outer(asyncio.Event()), loop=asyncio.get_running_loop(), name="subclass"))


async def python_task():
    keep(asyncio.tasks._PyTask(outer(asyncio.Event()), loop=asyncio.get_running_loop(),
                               name="python"))
    task = asyncio.tasks._PyTask(worker(asyncio.Event()), loop=asyncio.get_running_loop(),
                                 name="python-child")
    keep(task)
    keep(asyncio.create_task(joiner(task), name="python-joiner"))


async def thousand():
    event = asyncio.Event()
    for i in range(1000):
        keep(asyncio.create_task(outer(event), name=f"t-{i}"))


async def deep(n, event):
    await (deep(n - 1, event) if n else event.wait())


async def deep_chain():
    keep(asyncio.create_task(deep(100, asyncio.Event()), name="deep"))


async def handing_on():
    """A chain of tasks, each of which awaits the next."""
    task = asyncio.create_task(worker(asyncio.Event()), name="link-0")
    for i in range(1, 150):
        task = asyncio.create_task(joiner(task), name=f"link-{i}")
    keep(task)


async def anext_default():
    source = numbers(asyncio.Event())

    async def advance():
        await anext(source)
        await anext(source, None)
    keep(asyncio.create_task(advance(), name="advance"))
    return source


async def slow(event):
    await event.wait()
    yield 1


async def slow_outer(event):
    async for each in slow(event):
        yield each


async def slow_to_close(event):
    try:
        yield 1
    finally:
        await event.wait()


class async_generator_asend:
    """Has the name of what an asynchronous generator gives to await on, but isn't that."""
    def __init__(self, gen):
        self.gen = gen

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        future = asyncio.get_running_loop().create_future()
        future._asyncio_future_blocking = True  # waits; None would have the task run again and again
        return future


async def generators():
    event, closed, other = asyncio.Event(), slow_to_close(asyncio.Event()), sleeper()
    await anext(closed)
    keep([closed, other])
    for name, awaitable in {"async-for": iterate(slow(event)), "nested-for": iterate(slow_outer(event)),
                            "anext": anext(slow(event)), "aclose": closed.aclose(),
                            "named-so": joiner(async_generator_asend(other))}.items():
        keep(asyncio.create_task(awaitable, name=name))


async def staggered():
    from asyncio.staggered import staggered_race

    async def race():
        await staggered_race([lambda: worker(asyncio.Event())], None)
    keep(asyncio.create_task(race(), name="racer"))


class Hashed(asyncio.Task):
    """It has a place of its own in a set."""
    def __hash__(self):
        return int(self.get_name()[-1])


async def removed():
    """Who awaits a task is a set, out of which the first was taken."""
    task = asyncio.create_task(sleeper(), name="awaited")
    first, second = (Hashed(sleeper(), name=f"awaiter-{i}") for i in range(2))
    for each in first, second:
        asyncio.future_add_to_awaited_by(task, each)
    asyncio.future_discard_from_awaited_by(task, first)
    keep([task, first, second])


# ---- what the main task may do then ----

def spin():
    print("there", flush=True)
    while True:
        pass


async def then_spin():
    spin()


async def spinning():
    spin()
    yield 1


async def then_generate():
    await asyncio.create_task(anext(spinning()), name="anext")


async def then_hang():
    """The loop doesn't get to the tasks that it could run."""
    asyncio.create_task(sleeper(), name="new")
    future = asyncio.get_running_loop().create_future()
    asyncio.create_task(waiting_for(future), name="awakened")
    await asyncio.sleep(0)
    asyncio.create_task(sleeper(), name="newer")
    future.set_result(None)
    print("there", flush=True)
    time.sleep(10**6)


async def waiting_for(future):
    await future


async def eager_inner():
    spin()


async def eager_outer():
    start_eagerly(eager_inner(), "eager-inner")


def start_eagerly(coro, name):
    asyncio.Task(coro, loop=asyncio.get_running_loop(), eager_start=True, name=name)


async def then_eager():
    start_eagerly(eager_outer(), "eager-outer")


kept = []
keep = kept.append


async def main(cases, then):
    source = None
    for case in cases:
        source = await globals()[case]() or source
    for _ in range(200):
        await asyncio.sleep(0)
    me = asyncio.current_task()
    tasks = asyncio.all_tasks()
    if hasattr(asyncio.tasks, "_py_all_tasks"):  # those written in Python: not among them in 3.14
        tasks |= asyncio.tasks._py_all_tasks()
    said = [describe(t, source) for t in tasks if t is not me]
    print("ready", flush=True)
    print(json.dumps(said), flush=True)
    await (globals()[then]() if then else asyncio.Event().wait())


def end_with_input():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=end_with_input, daemon=True).start()
    arguments = sys.argv[1:]
    then = None
    if arguments[:1] == ["--then"]:
        then = arguments[1]
        del arguments[:2]
    asyncio.run(main(arguments, then))
