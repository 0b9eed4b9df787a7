"""A program with the trouble that is named: troubled.py TROUBLE. What README says of it is tried on it."""
import asyncio
import os
import sys
import threading
import time
import types

shop = types.ModuleType("shop")
sys.modules["shop"] = shop
shop.retries = 3
shop.cache = {}
shop.inventory_lock, shop.ledger_lock = threading.Lock(), threading.Lock()


def ready():
    print("ready", flush=True)


def order(number, met):
    with shop.inventory_lock:
        met.wait()
        with shop.ledger_lock:
            return number


def refund(number, met):
    with shop.ledger_lock:
        met.wait()
        with shop.inventory_lock:
            return number


def hangs():
    met = threading.Barrier(3)
    threads = [threading.Thread(target=each, args=(7, met), name=each.__name__) for each in (order, refund)]
    for thread in threads:
        thread.start()
    met.wait()
    ready()
    for thread in threads:
        thread.join()


def price(item):
    cycle = []
    cycle.append(cycle)
    return sum(item * number for number in range(2000))


def is_slow():
    ready()
    while True:
        total = 0
        for item in range(100):
            total += price(item)


class Session:
    def __init__(self, number):
        self.number = number


def leaks():
    ready()
    while True:
        for number in range(1000):
            shop.cache[len(shop.cache)] = Session(number)
        time.sleep(0.2)


def is_wrong():
    global weights
    weights = [0.0, 0.5, 1.0]
    ready()
    for step in range(10**9):
        update(step)
        time.sleep(0.01)


def update(step):
    gradient = float("nan") if step % 50 == 49 else 0.125
    weights[2] = 1.0 - gradient


def swallows():
    ready()
    while True:
        try:
            lookup({"id": 7}, "price")
        except KeyError:
            pass
        time.sleep(0.02)


def lookup(row, column):
    return row[column]


async def handler(request):
    await asyncio.sleep(0.01)
    if request % 5 == 4:
        time.sleep(0.3)  # what ought to be awaited
    return request


async def serve():
    ready()
    for request in range(10**9):
        await asyncio.create_task(handler(request), name=f"handler-{request}")


def blocks_the_loop():
    asyncio.run(serve())


def crashes():
    ready()
    sys.stdin.readline()
    lookup({"id": 7}, "price")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
