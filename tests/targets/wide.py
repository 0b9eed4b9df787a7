"""wide.py: another stack each time, of 70 calls in an order that is chance: as many nodes as anybody keeps."""
import random


def a(left):
    turn(left)


def b(left):
    turn(left)


def c(left):
    turn(left)


def turn(left):
    if left:
        random.choice((a, b, c))(left - 1)
    else:
        sum(range(20000))


print("ready", flush=True)
while True:
    turn(70)
