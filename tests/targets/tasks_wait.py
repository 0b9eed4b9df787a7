"""asyncio tasks that wait, each for something of its own, under its name. A comment `# NAME waits` or `# NAME takes`
marks the line at which it stands, or took what it holds."""
import asyncio
import os
import sys
import threading


class Shelf:
    def __init__(self):
        self.lock = asyncio.Lock()


async def sell(inventory, ledger, both):
    async with inventory.lock:  # seller takes
        await both.wait()
        async with ledger.lock:  # seller waits
            pass


async def buy(inventory, ledger, both):
    async with ledger.lock:  # buyer takes
        await both.wait()
        async with inventory.lock:  # buyer waits
            pass


async def hold(lock):
    async with lock:  # holder takes
        await asyncio.sleep(10**6)


async def want(lock):
    await asyncio.wait_for(lock.acquire(), 10**6)  # wanting waits


async def twice(lock):
    async with lock:  # twice takes
        async with lock:  # twice waits
            pass


async def listen(event):
    await event.wait()  # listener waits


async def fetch(queue):
    return await queue.get()  # getter waits


async def store(queue):
    await queue.put(1)  # putter waits


async def finish(queue):
    await queue.join()  # joiner waits


async def count(semaphore):
    async with semaphore:  # counter takes
        await asyncio.sleep(10**6)


async def uncounted(semaphore):
    async with semaphore:  # uncounted waits
        pass


async def condition_wait(condition):
    async with condition:
        await condition.wait()  # waiter waits


async def condition_hold(condition):
    async with condition:  # condition's takes
        await asyncio.sleep(10**6)


async def condition_want(condition):
    async with condition:  # second waits
        pass


async def promise(future):
    await future  # promised waits


async def first(tasks):
    await tasks["mutual-2"]  # mutual-1 waits


async def second(tasks):
    await asyncio.gather(tasks["mutual-1"])  # mutual-2 waits


async def several(tasks):
    await asyncio.gather(tasks["idle"], tasks["back"])  # several waits


async def back(tasks):
    async with asyncio.timeout(10**6):
        await tasks["several"]  # back waits


async def idle():
    await asyncio.sleep(10**6)


async def read(reader):
    await reader.readline()


async def main():
    tasks = {}
    inventory, ledger, both = Shelf(), Shelf(), asyncio.Event()
    full = asyncio.Queue(1)
    full.put_nowait(0)
    condition, taken, semaphore = asyncio.Condition(), asyncio.Lock(), asyncio.Semaphore(1)

    def start(name, coroutine):
        tasks[name] = asyncio.create_task(coroutine, name=name)

    start("seller", sell(inventory, ledger, both))
    start("buyer", buy(inventory, ledger, both))
    start("holder", hold(taken))
    start("wanting", want(taken))
    start("twice", twice(asyncio.Lock()))
    start("listener", listen(asyncio.Event()))
    start("getter", fetch(asyncio.Queue()))
    start("putter", store(full))
    start("joiner", finish(full))
    start("counter", count(semaphore))
    start("uncounted", uncounted(semaphore))
    start("waiter", condition_wait(condition))
    await asyncio.sleep(0)
    start("condition's", condition_hold(condition))
    start("second", condition_want(condition))
    start("promised", promise(asyncio.get_running_loop().create_future()))
    start("mutual-1", first(tasks))
    start("mutual-2", second(tasks))
    start("idle", idle())
    start("several", several(tasks))
    start("back", back(tasks))
    start("reader", read(asyncio.StreamReader()))
    for _ in range(3):
        await asyncio.sleep(0)
    both.set()
    for _ in range(5):
        await asyncio.sleep(0)
    print("ready", flush=True)
    await asyncio.sleep(10**6)


def end():
    sys.stdin.read()
    os._exit(0)


threading.Thread(target=end, daemon=True).start()
asyncio.run(main())
