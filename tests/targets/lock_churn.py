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
    """In this order, each in a with block in the one before."""
    if not names:
        linger(rng)
        return
    name = names[0]
    lock = locks[name]
    note.append((now(), "want", name))
    with lock:
        note.append((now(), "got", name))
        try:
            linger(rng)
            take(note, rng, names[1:])
        finally:
            note.append((now(), "give", name))
    note.append((now(), "gave", name))


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
    print(json.dumps({"names": {id(lock): name for name, lock in locks.items()},
                      "events": {name: list(noted) for name, noted in events.items()}}), flush=True)
os._exit(0)
