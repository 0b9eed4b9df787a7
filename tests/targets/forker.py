"""Forks children all the time; each works a little and ends. Prints the number of forks after
"count" at its input."""
import os
import sys
import threading

print("ready", flush=True)
asked = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), asked.set()), daemon=True).start()


def child(n):
    total = sum(range(n))
    os._exit(0 if total >= 0 else 1)


forks = 0
while not asked.is_set():
    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            child(20000)
        pids.append(pid)
        forks += 1
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
print(forks, flush=True)
