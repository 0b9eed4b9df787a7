"""sites.py: allocates; one line keeps what it makes, one gives it back. Each line of input makes so many more."""
import sys

kept = []


def keep():
    kept.append(bytes(1000))


def drop():
    bytes(3000)


def work(n):
    for _ in range(n):
        keep()
        drop()


print("ready", flush=True)
for line in sys.stdin:
    if line == "clear\n":
        kept.clear()
    else:
        work(int(line))
    print("done", flush=True)
