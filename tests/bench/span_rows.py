"""A program with a million spans of 16 names, for tests/bench/scan.py: begins when told, then waits."""
import random
import sys

NAMES = ["epoch", "step", "load", "forward", "backward", "optimizer"] + [f"layer.{i}" for i in range(10)]

print("ready", flush=True)
sys.stdin.readline()
from probing import span  # there is an agent by now

choice = random.Random(1).choice
for i in range(int(sys.argv[1])):
    with span(choice(NAMES), loss=i % 1000):
        pass
print("done", flush=True)
sys.stdin.readline()
