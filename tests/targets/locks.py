"""locks.py SCENE: threads wait for each other. Each thread's name says who it is, and a comment
`# NAME waits` or `# NAME takes` marks the line at which it stands, or took what it holds."""
import concurrent.futures
import ctypes
import logging
import multiprocessing
import os
import queue
import sys
import threading
import time

import oracle


class Shelf:
    def __init__(self):
        self.lock = threading.Lock()
        self.again = threading.RLock()
        self.full = threading.Condition()


inventory, ledger = Shelf(), Shelf()
shared = threading.Lock()
forks = [threading.Lock() for _ in range(3)]
by_name = {"red": threading.Lock()}
both = threading.Barrier(2)
taken = threading.Event()
three = threading.Barrier(3)


def start(name, function, *args):
    thread = threading.Thread(target=function, args=args, name=name, daemon=True)
    thread.start()
    return thread


def sleep():
    taken.set()
    time.sleep(10**6)


def deadlock():
    def sell():
        with inventory.lock:  # seller takes
            both.wait()
            with ledger.lock:  # seller waits
                pass

    def buy():
        with ledger.lock:  # buyer takes
            both.wait()
            with inventory.lock:  # buyer waits
                pass

    start("seller", sell)
    start("buyer", buy)


def bare_deadlock():
    """As deadlock(), without with blocks."""
    def sell():
        inventory.lock.acquire()  # seller takes
        try:
            both.wait()
            ledger.lock.acquire()  # seller waits
        finally:
            inventory.lock.release()

    def buy():
        ledger.lock.acquire()  # buyer takes
        both.wait()
        inventory.lock.acquire()  # buyer waits

    start("seller", sell)
    start("buyer", buy)


def circle_of_three():
    def dine(i):
        with forks[i]:  # philosopher takes
            three.wait()
            with forks[(i + 1) % 3]:  # philosopher waits
                pass

    for i in range(3):
        start(f"philosopher-{i}", dine, i)


def itself():
    def again():
        with shared:  # careless takes
            shared.acquire()  # careless waits

    start("careless", again)


def rlock():
    def hold():
        with inventory.again:  # holder takes
            with inventory.again:
                sleep()

    def wait():
        taken.wait()
        inventory.again.acquire()  # waiter waits

    start("holder", hold)
    start("waiter", wait)


def plain():
    """A Lock in every place where one may be found, held in with blocks that are left by now, too."""
    class Keeper:
        common = threading.Lock()

        def __init__(self):
            self._lock = threading.Lock()

        def hold(self):
            with shared:
                pass
            try:
                with shared, self._lock:
                    raise ValueError
            except ValueError:
                pass
            with shared, by_name["red"], self._lock, self.common:  # holder takes
                try:
                    sleep()
                finally:
                    pass

        def wait(self):
            taken.wait()
            with self._lock:  # of-self waits
                pass

        def wait_common(self):
            taken.wait()
            with self.common:  # of-class waits
                pass

    def wait_global():
        taken.wait()
        with shared:  # of-module waits
            pass

    def wait_key():
        taken.wait()
        with by_name["red"]:  # of-dict waits
            pass

    def wait_argument(given):
        taken.wait()
        given.acquire()  # of-argument waits

    def wait_bound(call):
        taken.wait()
        call()  # of-method waits

    keeper = Keeper()
    start("holder", keeper.hold)
    start("of-self", keeper.wait)
    start("of-class", keeper.wait_common)
    start("of-module", wait_global)
    start("of-dict", wait_key)
    start("of-argument", wait_argument, shared)
    start("of-method", wait_bound, shared.acquire)


def condition():
    def hold():
        with inventory.full:  # holder takes
            sleep()

    def wait():
        taken.wait()
        with inventory.full:  # waiter waits
            pass

    def notified():
        with ledger.full:
            ledger.full.wait()  # sleeper waits

    def timed():
        with ledger.full:
            ledger.full.wait(10**6)  # patient waits

    start("holder", hold)
    start("waiter", wait)
    start("sleeper", notified)
    start("patient", timed)


def others():
    """What nobody holds."""
    jobs, few, simple = queue.Queue(), queue.Queue(1), queue.SimpleQueue()
    event, semaphore = threading.Event(), threading.Semaphore(0)
    future, five = concurrent.futures.Future(), threading.Barrier(5)
    few.put(1)

    def get():
        jobs.get()  # getter waits

    def put():
        few.put(2)  # putter waits

    def finish():
        few.join()  # finisher waits

    def take():
        simple.get()  # taker waits

    def wait():
        event.wait()  # listener waits

    def acquire():
        semaphore.acquire()  # guest waits

    def meet():
        five.wait()  # early waits

    def result():
        future.result()  # client waits

    for name, function in dict(getter=get, putter=put, finisher=finish, taker=take, listener=wait,
                               guest=acquire, early=meet, client=result).items():
        start(name, function)


def semaphore():
    def hold():
        with one:  # holder takes
            sleep()

    def wait():
        taken.wait()
        with one:  # waiter waits
            pass

    one = threading.BoundedSemaphore(1)
    start("holder", hold)
    start("waiter", wait)


def join():
    def wait():
        worker.join()  # joiner waits

    def follow():
        pool.submit(sleep).result()  # client waits

    worker = start("worker", sleep)
    start("joiner", wait)
    pool = concurrent.futures.ThreadPoolExecutor(1, "pool")
    start("client", follow)


def end():
    """The interpreter waits for a thread that doesn't end."""
    threading.Thread(target=sleep, name="eternal").start()


def bare():
    """A lock that was taken without a with block, by a thread that has ended."""
    def take():
        shared.acquire()

    def wait():
        taken.wait()
        with shared:  # waiter waits
            pass

    start("taker", take).join()
    taken.set()
    start("waiter", wait)


def imports():
    """A module that waits for a thread which imports it. Its lock is held by who imports it."""
    import locks_imported  # MainThread takes


def processes():
    """A lock of multiprocessing, between threads."""
    def hold():
        with one:  # holder takes
            sleep()

    def wait():
        taken.wait()
        with one:  # waiter waits
            pass

    def acquire():
        taken.wait()
        one.acquire()  # other waits

    one = multiprocessing.get_context("spawn").Lock()
    start("holder", hold)
    start("waiter", wait)
    start("other", acquire)


def mutex():
    """A C extension waits for a mutex and keeps the GIL, which the mutex's holder waits for."""
    def extension(mutex):
        lock(mutex)
        taken.set()
        while not tried:
            time.sleep(0.001)

    def caller(mutex):
        taken.wait()
        oracle.ready()
        tried.append(1)
        lock(mutex)  # caller waits

    lock, tried = ctypes.PyDLL(None).pthread_mutex_lock, []
    memory = ctypes.create_string_buffer(40)
    start("extension", extension, memory)
    start("caller", caller, memory).join()


def fork():
    """The classic: a child logs, and the handler's lock was held by a thread that is not in it."""
    def hold():
        with handler.lock:
            sleep()

    class Handler(logging.StreamHandler):
        def createLock(self):
            self.lock = threading.RLock()  # one that logging doesn't make anew in a child

    handler = Handler()
    logging.getLogger().addHandler(handler)
    start("holder", hold)
    taken.wait()
    child = os.fork()
    if not child:
        logging.error("never said")  # MainThread waits
    print(child, flush=True)


scene = sys.argv[1]
if scene in ("end", "imports"):
    oracle.ready_when_still()
globals()[scene]()
if scene not in ("end", "imports"):
    oracle.park()
