"""One thread holds a lock, a second waits for it, a third joins the second, the main one sleeps
in a condition."""
import threading
import time

import oracle

lock = threading.Lock()
held = threading.Event()


def holder():
    with lock:
        held.set()
        time.sleep(10**6)


def waiter():
    held.wait()
    with lock:
        pass


def joiner(thread):
    thread.join()


first = threading.Thread(target=holder, name="holder", daemon=True)
second = threading.Thread(target=waiter, name="waiter", daemon=True)
third = threading.Thread(target=joiner, args=(second,), name="joiner", daemon=True)
for thread in first, second, third:
    thread.start()
oracle.ready_when_still()
condition = threading.Condition()
with condition:
    condition.wait()
