"""What images/ are of: threads, and with the argument "tasks" asyncio's tasks as well, that wait for each other, in as
little memory as that takes. Says "ready" once all of it waits."""
import _thread
import sys
import threading


class Shop:
    __slots__ = ("lock", "name")

    def __init__(self):
        self.lock, self.name = threading.Lock(), "shop"

    def serve(self, table):
        with table["a"]:
            entered.release()
            with self.lock:
                pass


def doubled(items):
    for item in items:
        with mine:
            yield item * 2


def take(locks):
    try:
        1 / 0
    except ZeroDivisionError:
        entered.release()
        locks[1].acquire()


def wait_for(condition, numbers=(1, 2.5, -3 << 70, 1j, None, b"x", range(3))):
    generator, kept = doubled([1, 2]), {"k": {1, 2}, "n": numbers}
    next(generator)
    with condition:
        entered.release()
        condition.wait()


async def hold(lock):
    async with lock:
        await asyncio.sleep(1e6)


async def want(lock):
    async with lock:
        pass


async def main():
    lock = asyncio.Lock()
    tasks = [asyncio.create_task(hold(lock)), asyncio.create_task(want(lock))]
    asyncio.get_running_loop().call_soon(print, "ready")
    await asyncio.gather(*tasks)


sys.stdout.reconfigure(line_buffering=True)
entered, mine, shop = threading.Semaphore(0), threading.RLock(), Shop()
shop.lock.acquire()
locks = [_thread.allocate_lock(), shop.lock]
for target, argument in ((shop.serve, {"a": threading.RLock()}), (take, locks), (wait_for, threading.Condition())):
    threading.Thread(target=target, args=(argument,), daemon=True).start()
for _ in range(3):
    entered.acquire()
if sys.argv[1:] == ["tasks"]:
    import asyncio
    asyncio.run(main())
print("ready")
with mine:
    shop.lock.acquire()
