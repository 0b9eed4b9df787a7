"""span_loops.py [DIRECTORY]: at "run" prints what entering and leaving a span takes, NAME=SECONDS, by each
way that there is. DIRECTORY: where OpenTelemetry is."""
import asyncio
import contextlib
import sys
import threading
import time

COUNT, BATCHES = 2000, 100
made = []


@contextlib.contextmanager
def listed(name):
    """What one writes by oneself in a minute."""
    begin = time.perf_counter()
    try:
        yield
    finally:
        made.append((name, begin, time.perf_counter()))
        if len(made) > 10000:
            made.clear()


def opentelemetry():
    """A span that no processor gets: the least that it costs."""
    sys.path.append(sys.argv[1])
    try:
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError as error:
        print(f"skipped={error}".replace(" ", "_"), flush=True)
        return None
    return TracerProvider().get_tracer("bench").start_as_current_span


def nothing(count):
    for _ in range(count):
        pass


def loop(make):
    def run(count):
        for _ in range(count):
            with make("step"):
                pass
    return run


def least(run):
    """Of so many batches: what is more was the machine's doing."""
    took = []
    for _ in range(BATCHES):
        begin = time.perf_counter()
        run(COUNT)
        took.append(time.perf_counter() - begin)
    return min(took) / COUNT


def ways():
    import probing  # an agent has come in

    def lock(count, lock=threading.Lock()):
        for _ in range(count):
            with lock:
                pass

    def span(count):
        for _ in range(count):
            with probing.span("step"):
                pass

    def attributes(count):
        for i in range(count):
            with probing.span("step", number=i, path="a.pt"):
                pass

    def event(count):
        for _ in range(count):
            probing.event("step")

    @probing.span("step")
    def function():
        pass

    def decorated(count):
        for _ in range(count):
            function()

    found = dict(lock=lock, span=span, attributes=attributes, event=event, decorated=decorated,
                 contextlib=loop(listed))
    start = opentelemetry() if len(sys.argv) > 1 else None
    if start:
        found["opentelemetry"] = loop(start)
    return found


async def in_a_task(run):
    return least(run)


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    found = ways()
    empty = least(nothing)
    said = {name: least(run) - empty for name, run in found.items()}
    said["task"] = asyncio.run(in_a_task(found["span"])) - empty
    print(*(f"{name}={seconds}" for name, seconds in said.items()), flush=True)
    sys.stdin.readline()


main()
