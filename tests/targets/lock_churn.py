"""Threads that take and give locks all the time, and note when: "history" on standard input prints it, as JSON.

{"names": {id of a lock: its name}, "events": {name of a thread: [[when, what, name of a lock], ...]}}, when in
nanoseconds of CLOCK_MONOTONIC: "want" before it is taken, "got" after, "give" before it is given back, "gave" after."""
import json
import os
import random
import sys
import threading
import time

now = time.monotonic_ns
locks = {"first": threading.Lock(), "second": threading.Lock(), "again": threading.RLock(),
         "told": threading.Condition(threading.Lock())}
events = {}


def linger(rng):
    """Asleep, at work, or not at all."""
    kind = rng.random()
    if kind < 0.5:
        time.sleep(rng.random() * 0.01)
    elif kind < 0.7:
        end = now() + rng.randrange(2_000_000)
        while now() < end:
            pass


def take(note, rng, names):
    """In this order, each while the one before is held, in any way that there is."""
    if not names:
        linger(rng)
        return
    rng.choice(ways)(note, rng, names[0], locks[names[0]], names[1:])


def take_with(note, rng, name, lock, rest):
    note.append((now(), "want", name))
    with lock:
        note.append((now(), "got", name))
        try:
            linger(rng)
            take(note, rng, rest)
        finally:
            note.append((now(), "give", name))
    note.append((now(), "gave", name))


def take_in_try(note, rng, name, lock, rest):
    note.append((now(), "want", name))
    lock.acquire()
    try:
        note.append((now(), "got", name))
        linger(rng)
        take(note, rng, rest)
    finally:
        note.append((now(), "give", name))
        lock.release()
    note.append((now(), "gave", name))
    linger(rng)


def take_one_after_the_other(note, rng, name, lock, rest):
    """Or not at all."""
    for _ in range(rng.randrange(3)):
        linger(rng)
        note.append((now(), "want", name))
        lock.acquire()
        note.append((now(), "got", name))
        linger(rng)
        if rng.random() < 0.5:
            note.append((now(), "give", name))
            lock.release()
            note.append((now(), "gave", name))
            linger(rng)
            continue
        take(note, rng, rest)
        note.append((now(), "give", name))
        lock.release()
        note.append((now(), "gave", name))


def take_elsewhere(note, rng, name, lock, rest):
    note.append((now(), "want", name))
    acquire(lock)
    note.append((now(), "got", name))
    take(note, rng, rest)
    note.append((now(), "give", name))
    release(lock)
    note.append((now(), "gave", name))


def acquire(lock):
    lock.acquire()


def release(lock):
    lock.release()


def take_and_give_back_elsewhere(note, rng, name, lock, rest):
    note.append((now(), "want", name))
    lock.acquire()
    note.append((now(), "got", name))
    take(note, rng, rest)
    give_back_and_linger(note, rng, name, lock)


def give_back_and_linger(note, rng, name, lock):
    linger(rng)
    note.append((now(), "give", name))
    lock.release()
    note.append((now(), "gave", name))
    linger(rng)


def take_with_pauses(note, rng, name, lock, rest):
    note.append((now(), "want", name))
    with lock:
        note.append((now(), "got", name))
        linger(rng)
        note.append((now(), "give", name))
        lock.release()
        note.append((now(), "gave", name))
        linger(rng)
        note.append((now(), "want", name))
        lock.acquire()
        note.append((now(), "got", name))
        take(note, rng, rest)
        note.append((now(), "give", name))
    note.append((now(), "gave", name))


ways = [take_with, take_with, take_in_try, take_one_after_the_other, take_elsewhere, take_and_give_back_elsewhere,
        take_with_pauses]


def wait_told(note, rng):
    """Gives the condition's lock back in between."""
    lock = locks["told"]
    note.append((now(), "want", "told"))
    with lock:
        note.append((now(), "got", "told"))
        linger(rng)
        note.append((now(), "give", "told"))
        lock.wait(rng.random() * 0.005)
        note.append((now(), "got", "told"))
        note.append((now(), "give", "told"))
    note.append((now(), "gave", "told"))


def churn(note, seed):
    rng = random.Random(seed)
    while True:
        if rng.random() < 0.2:
            wait_told(note, rng)
        else:
            order = [name for name in locks if rng.random() < 0.6]
            take(note, rng, order)


for i in range(4):
    name = f"churn-{i}"
    events[name] = []
    threading.Thread(target=churn, args=(events[name], i), name=name, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps({"names": {id(part): name for name, lock in locks.items()
                                for part in (lock, getattr(lock, "_lock", lock))},
                      "events": {name: list(noted) for name, noted in events.items()}}), flush=True)
os._exit(0)
