"""churn.py: threads that live for a few milliseconds, one after the other at the place of the last
one, so that they share pthread_t; each is named "t" and its own tid."""
import threading
import time

import oracle


def work():
    threading.current_thread().name = f"t{threading.get_native_id()}"
    named()


def named():
    time.sleep(0.003)


def live():
    while not oracle.stop.is_set():
        thread = threading.Thread(target=work, name="new")
        thread.start()
        thread.join()


for _ in range(4):
    threading.Thread(target=live, name="parent", daemon=True).start()
oracle.ready()
oracle.stop.wait()
