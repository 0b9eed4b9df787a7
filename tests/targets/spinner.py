"""spinner.py [ROUNDS]: one busy thread in nested calls; prints a checksum after ROUNDS rounds,
which depends on nothing but ROUNDS. Without ROUNDS it spins until its input ends."""
import sys

import oracle


def mix(value, i):
    return (value * 1103515245 + 12345 + i) & 0x7FFFFFFF


def inner(value, i):
    for j in range(10):
        value = mix(value, i + j)
    return value


def round_(value):
    for i in range(10):
        value = inner(value, i)
    return value


def main(rounds):
    value = n = 0
    while n != rounds:
        value = round_(value)
        n += 1
    return value


oracle.ready()
print(main(int(sys.argv[1]) if len(sys.argv) > 1 else -1), flush=True)
