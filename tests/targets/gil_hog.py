"""gil_hog.py [SECONDS]: the main thread sleeps in C and keeps the GIL; "waiter" wants it."""
import ctypes
import sys
import threading
import time

import oracle

started = threading.Event()


def waiter():
    started.set()
    while True:
        time.sleep(0.001)


def hog(seconds):
    ctypes.PyDLL(None).sleep(seconds)  # PyDLL, unlike CDLL, keeps the GIL


threading.Thread(target=waiter, name="waiter", daemon=True).start()
started.wait()
oracle.ready()
hog(int(sys.argv[1]) if len(sys.argv) > 1 else 10**6)
print("done", flush=True)
