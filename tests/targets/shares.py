"""shares.py KIND: spends its time in functions whose shares it measures itself, by its own clocks. "begin" at the input
starts afresh; "end" prints what came since as JSON: {function: [processor seconds, seconds]}; "hold" has it do nothing
until the next line, and prints "held".

python   four functions of pure Python, 10, 20, 30 and 40 %
calls    two chains (hot_a -> leaf_a, hot_b -> leaf_b) of the shortest calls: a stack that never was shows
mix      Python, C with the GIL, C without it, and sleep, a quarter of the time each
paced    wakes every 10 ms, as a timer of 100 Hz does, and computes 2 ms in tick_a and 1 ms in tick_b
threads  four of them: two in Python, which fight for the GIL, one in C without it, one asleep
tasks    of asyncio: four that compute, two of them gathered, one of them made anew each time; others wait for time, a
         queue, a lock, a socket. Here {task: [processor seconds in burnN(), seconds that it awaited something]}
"""
import asyncio
import json
import os
import select
import socket
import sys
import threading
import time
import zlib

truth = {}
numbers = []
block = bytes(1 << 20)


def spin(n):
    x = 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF


def burn10(n):
    x = 1
    for _ in range(n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF


def burn20(n):
    x = 1
    for _ in range(2 * n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF


def burn30(n):
    x = 1
    for _ in range(3 * n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF


def burn40(n):
    x = 1
    for _ in range(4 * n):
        x = (x * 1103515245 + 12345) & 0x7FFFFFFF


def leaf_a():
    return 1


def leaf_b():
    return 2


def hot_a(n):
    for _ in range(n):
        leaf_a()


def hot_b(n):
    for _ in range(3 * n):
        leaf_b()


def in_python(n):
    spin(n)


def in_c_gil(n):
    sorted(numbers)


def in_c_nogil(n):
    zlib.crc32(block)


def asleep(n):
    time.sleep(0.005)


def busy_for(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def tick_a(n):
    busy_for(0.002)


def tick_b(n):
    busy_for(0.001)


def timed(function, n):
    wall, cpu = time.perf_counter(), time.thread_time()
    function(n)
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
    spent = truth.setdefault(function.__name__, [0.0, 0.0])
    spent[0] += cpu
    spent[1] += wall


def as_long_as(seconds, function, *arguments):
    """How often it must be done to take so long."""
    best = min(once(function, *arguments) for _ in range(5))
    return max(1, round(seconds / best))


def once(function, *arguments):
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin


def in_turns(*work):
    while listen():
        for function, n in work:
            timed(function, n)


def listen():
    """Answers what was asked, and says whether to go on."""
    held = False
    while select.select([0], [], [], None if held else 0)[0]:
        asked = os.read(0, 1 << 10).decode()
        for line in asked.splitlines():
            held = line == "hold"
            if held:
                print("held", flush=True)
                continue
            if line == "end":
                print(json.dumps(truth), flush=True)
            truth.clear()
        if not held:
            return bool(asked)
    return True


def python():
    in_turns((burn10, 3000), (burn20, 3000), (burn30, 3000), (burn40, 3000))


def calls():
    in_turns((hot_a, 3000), (hot_b, 3000))


def mix():
    global numbers, block
    numbers = [(i * 7919) % 10007 / 3 for i in range(1000)]
    numbers *= as_long_as(0.005, sorted, numbers)
    block *= as_long_as(0.005, zlib.crc32, block)
    in_turns((in_python, 1000 * as_long_as(0.005, spin, 1000)), (in_c_gil, 0), (in_c_nogil, 0), (asleep, 0))


def paced():
    due = time.perf_counter()
    while listen():
        timed(tick_a, 0)
        timed(tick_b, 0)
        due = max(due + 0.01, time.perf_counter() - 0.01)
        time.sleep(max(0, due - time.perf_counter()))


def side_by_side():
    """What each has spent is told while all of them stand at a barrier."""
    global block
    block = bytes(16 << 20)
    asked = threading.Event()
    barrier = threading.Barrier(5)
    stay = True

    def work(function, n):
        while stay:
            wall, cpu = time.perf_counter(), time.thread_time()
            while not asked.is_set():
                function(n)
            truth[function.__name__] = [time.thread_time() - cpu, time.perf_counter() - wall]
            barrier.wait()
            barrier.wait()

    for function, n in (burn10, 3000), (burn20, 3000), (in_c_nogil, 0), (asleep, 0):
        threading.Thread(target=work, args=(function, n), name=function.__name__).start()
    for line in sys.stdin:
        asked.set()
        barrier.wait()
        while line == "hold\n":
            print("held", flush=True)
            line = sys.stdin.readline()
        if line == "end\n":
            print(json.dumps(truth), flush=True)
        asked.clear()
        barrier.wait()
    stay = False
    asked.set()
    barrier.wait()
    barrier.wait()


def spend(task, cpu, waited):
    spent = truth.setdefault(task, [0.0, 0.0])
    spent[0] += cpu
    spent[1] += waited


def compute(task, function):
    begin = time.thread_time()
    function(3000)
    spend(task, time.thread_time() - begin, 0)


async def waited(task, awaitable):
    begin = time.perf_counter()
    result = await awaitable
    spend(task, 0, time.perf_counter() - max(begin, since))
    return result


async def nested(task, function):
    compute(task, function)
    await waited(task, asyncio.sleep(0))


async def computes(task, function):
    while True:
        await nested(task, function)


async def gathers(task):
    both = asyncio.gather(asyncio.create_task(computes("twenty", burn20), name="twenty"),
                          asyncio.create_task(computes("thirty", burn30), name="thirty"))
    await waited(task, both)


async def once_only(task, function):
    compute(task, function)


async def makes(task):
    while True:
        await waited(task, asyncio.create_task(once_only("forty", burn40), name="forty"))


async def sleeps(task):
    while True:
        await waited(task, asyncio.sleep(0.03))


async def takes(task, queue):
    while True:
        await waited(task, queue.get())


async def puts(task, queue):
    while True:
        await waited(task, asyncio.sleep(0.05))
        queue.put_nowait(1)


async def locks(task, lock):
    while True:
        await waited(task, lock.acquire())
        await waited(task, asyncio.sleep(0.02))
        lock.release()


async def reads(task, stream):
    while True:
        await waited(task, asyncio.get_running_loop().sock_recv(stream, 1))


async def for_ever(task):
    await waited(task, asyncio.Event().wait())


async def many():
    global since
    here, there = socket.socketpair()
    here.setblocking(False)
    queue, lock = asyncio.Queue(), asyncio.Lock()
    work = {"ten": computes("ten", burn10), "gatherer": gathers("gatherer"), "maker": makes("maker"),
            "sleeper": sleeps("sleeper"), "taker": takes("taker", queue), "giver": puts("giver", queue),
            "locker-1": locks("locker-1", lock), "locker-2": locks("locker-2", lock), "reader": reads("reader", here),
            "waiter": for_ever("waiter")}
    kept = [asyncio.create_task(coroutine, name=name) for name, coroutine in work.items()]
    loop, stay = asyncio.get_running_loop(), asyncio.Event()

    def asked():
        global since
        if not listen():
            stay.set()
        since = time.perf_counter()
        there.send(b"1")

    loop.add_reader(0, asked)
    await stay.wait()
    for task in kept:
        task.cancel()


def tasks():
    asyncio.run(many())


since = 0.0


def deep(left, function):
    return deep(left - 1, function) if left else function()


KINDS = {"python": python, "calls": calls, "mix": mix, "paced": paced, "threads": side_by_side, "tasks": tasks}
print("ready", flush=True)
deep(20, KINDS[sys.argv[1]])
