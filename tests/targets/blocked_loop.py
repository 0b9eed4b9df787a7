"""A loop of asyncio that is told on standard input, by another thread, what to run: `block`, `hold`, `raise`, `serve`,
`many`, `callback`, or Python. Says on standard output what came of it."""
import asyncio
import socket
import sys
import threading
import time

go = threading.Lock()
go.acquire()
CLASSES = {"_run_once": asyncio.BaseEventLoop, "_set_coroutine_origin_tracking": asyncio.BaseEventLoop,
           "_process_events": asyncio.selector_events.BaseSelectorEventLoop}
BEFORE = {name: vars(owner)[name] for name, owner in CLASSES.items()}


def changed():
    return [name for name, owner in CLASSES.items() if vars(owner)[name] is not BEFORE[name]]


def sync_call():
    began = time.monotonic()
    go.acquire()  # BLOCKS
    return time.monotonic() - began


def keep_gil():
    began = time.monotonic()
    sum(range(10_000_000))  # KEEPS
    return time.monotonic() - began


async def handler():
    """As one of aiohttp that calls a library which knows nothing of asyncio."""
    await asyncio.sleep(0)
    return sync_call()


async def holder():
    await asyncio.sleep(0)
    return keep_gil()


async def raiser():
    await asyncio.sleep(0)
    raise ValueError("of the program")


async def serve(rounds=200):
    """A server and its client; the number of lines that came back as they were sent."""
    async def echo(reader, writer):
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    ours, theirs = socket.socketpair()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: asyncio.StreamReaderProtocol(reader, echo), sock=theirs)
    back, writer = await asyncio.open_connection(sock=ours)
    same = 0
    for n in range(rounds):
        writer.write(b"%d\n" % n)
        same += await back.readline() == b"%d\n" % n
    writer.close()
    transport.close()
    return same


async def many(count=300):
    """Tasks that wait for each other and for time."""
    queue = asyncio.Queue(3)

    async def put(n):
        await asyncio.sleep(n % 3 / 1000)
        await queue.put(n)
    tasks = [asyncio.create_task(put(n)) for n in range(count)]
    got = [await queue.get() for _ in range(count)]
    await asyncio.gather(*tasks)
    return sum(got)


def callback():
    print("called", sync_call(), flush=True)


async def run(coroutine):
    try:
        print("done", await coroutine, flush=True)
    except Exception as error:
        print("failed", repr(error), flush=True)


def listen(loop):
    coroutines = {"block": handler, "hold": holder, "raise": raiser, "serve": serve, "many": many}
    for number, line in enumerate(sys.stdin, 1):
        word = line.strip()
        if word == "go":
            go.release()
        elif word == "callback":
            loop.call_soon_threadsafe(callback)
        elif word in coroutines:
            loop.call_soon_threadsafe(
                lambda word=word, number=number: tasks.append(
                    loop.create_task(run(coroutines[word]()), name=f"handler-{number}")))
        else:
            exec(word, globals())
            print("done", flush=True)
    loop.call_soon_threadsafe(loop.stop)


tasks = []
if __name__ == "__main__":
    loop = asyncio.new_event_loop()
    if "debug" in sys.argv:
        loop.set_debug(True)
        loop.slow_callback_duration = 0.01
    threading.Thread(target=listen, args=(loop,), daemon=True).start()
    loop.call_soon(lambda: print("ready", flush=True))
    loop.run_forever()
    loop.close()
