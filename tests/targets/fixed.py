"""fixed.py: a process of which is known what tests/sql/ asks for. Two threads wait for a lock, one runs asyncio
tasks, and the main thread reads its standard input."""
import asyncio
import sys
import threading
import types

lock = threading.Lock()
lock.acquire()
started = threading.Semaphore(0)


def inner(number):
    words = ["a", "b"]
    started.release()
    lock.acquire()


def outer(name, half):
    number = int(half * 2)
    inner(number)


async def eat(what):
    started.release()
    await asyncio.Event().wait()


async def feed(eater):
    started.release()
    await eater


async def dinner():
    eater = asyncio.create_task(eat("bread"), name="eater")
    await asyncio.gather(eater, asyncio.create_task(feed(eater), name="feeder"))


def serve():
    asyncio.run(dinner())


sys.modules["fixed.module"] = types.ModuleType("fixed.module")
for i, name in enumerate(["alpha", "beta, the 2nd"]):
    threading.Thread(target=outer, args=(name, i / 2), name=name, daemon=True).start()
threading.Thread(target=serve, name="loop", daemon=True).start()
for _ in range(4):
    started.acquire()
print("ready", flush=True)
sys.stdin.read()
