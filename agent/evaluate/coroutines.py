"""`await` at the top level: on the event loop that runs in the thread, else on one of our own."""
import sys
from _thread import allocate_lock, get_ident

TICK = 0.02        # seconds until an interrupt is noticed while a loop runs the code
CANCEL_TICKS = 50  # in which a cancelled task has to end


class Outcome:
    """How a coroutine ended."""
    __slots__ = "value", "error", "task", "cancelled", "ended", "lock"

    def __init__(self):
        self.value = self.error = self.task = None
        self.cancelled = self.ended = False
        self.lock = allocate_lock()
        self.lock.acquire()

    def end(self, *_):
        if not self.ended:
            self.ended = True
            self.lock.release()

    async def guard(self, coroutine):
        """Awaits it, and lets nothing through to an event loop of the program."""
        try:
            self.value = await coroutine
        except BaseException as error:
            self.error = error

    def take(self):
        value, error = self.value, self.error
        self.value = self.error = self.task = None
        try:
            if error is not None:
                raise error
            return value
        finally:
            del error


def run_coroutine(coroutine, names, thread):
    """Its result; it runs on the event loop that runs in the thread, else on one of our own."""
    loop = running_loop(names, thread)
    outcome = Outcome()
    if loop is not None and thread == get_ident():
        coroutine.close()
        raise RuntimeError("the thread is stopped, and with it its event loop: nothing can be awaited")
    if loop is not None:
        run_on(loop, coroutine, outcome)
    else:
        run_alone(coroutine, outcome)
    return outcome.take()


def running_loop(names, thread):
    kind = getattr(sys.modules.get("asyncio.events"), "AbstractEventLoop", None)
    frame = innermost(thread) if kind else None
    for _ in range(FRAMES_MAX):
        if frame is None:
            return None
        for name in "self", "loop":
            try:
                found = names.variable(frame, name)
            except KeyError:
                continue
            if type(found).__module__ == "asyncio.runners":
                found = getattr(found, "_loop", None)  # uvloop's own methods have no Python frame
            if issubclass(type(found), kind) and found.is_running() \
                    and getattr(found, "_thread_id", thread) == thread:
                return found
        frame = frame.f_back


def run_on(loop, coroutine, outcome):
    """On a loop that runs in another thread."""
    def start():
        if outcome.cancelled:
            coroutine.close()
            outcome.end()
            return
        guard = outcome.guard(coroutine)
        try:
            outcome.task = loop.create_task(guard)
            outcome.task.add_done_callback(outcome.end)
        except BaseException as error:
            outcome.error = error
            guard.close()
            coroutine.close()
            outcome.end()

    def cancel():
        if outcome.task is not None:
            outcome.task.cancel()

    try:
        loop.call_soon_threadsafe(start)
        while not outcome.lock.acquire(True, TICK):
            if loop.is_closed():
                raise RuntimeError("the event loop was closed")
    except BaseException:
        outcome.cancelled = True
        if not loop.is_closed():
            loop.call_soon_threadsafe(cancel)
            for _ in range(CANCEL_TICKS):
                if outcome.lock.acquire(True, TICK):
                    break
        elif outcome.task is None:
            coroutine.close()
        raise


def run_alone(coroutine, outcome):
    """On a loop made for it, as asyncio.run() does; that would ask for the current thread, and so
    make ours known to the program."""
    import asyncio

    def tick():  # lets Python notice an interrupt
        loop.call_later(TICK, tick)

    loop = asyncio.new_event_loop()
    try:
        loop.call_soon(tick)
        loop.run_until_complete(outcome.guard(coroutine))
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
            coroutine.close()
            tick = None  # it refers to itself
