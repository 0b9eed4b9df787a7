"""loops.py: at "run" prints what each of some loops took, NAME=SECONDS of processor time, all threads of
the process together. They are of the kinds that pyperformance has: numbers, objects, text,
containers, generators, a regular expression."""
import json
import re
import sys
import time


def numbers():
    x, y, vx, vy = 1.0, 0.0, 0.0, 1.0
    for _ in range(60000):
        r3 = (x * x + y * y) ** 1.5
        vx, vy = vx - x / r3 * 0.001, vy - y / r3 * 0.001
        x, y = x + vx * 0.001, y + vy * 0.001
    return x


class Task:
    def __init__(self, following):
        self.following, self.count = following, 0

    def step(self):
        self.count += 1
        return self.following


def objects():
    tasks = [Task(None) for _ in range(10)]
    for i, task in enumerate(tasks):
        task.following = tasks[i * 7 % 10]
    task = tasks[1]
    for _ in range(200000):
        task = task.step()
    return sum(task.count for task in tasks)


def text():
    return sum(len(json.dumps(json.loads('{"a": [1, 2.5, "three", null], "b": {"c": "d"}}')))
               for _ in range(5000))


def containers():
    seen = {}
    for i in range(100000):
        seen[i * 7919 % 10007] = seen.get(i % 997, 0) + 1
    return sorted(seen.items(), key=lambda item: item[1])[0]


def generators():
    def count(n):
        for i in range(n):
            yield i * i

    return sum(i for i in count(200000) if i % 3)


def expression():
    return len(re.findall(r"(\w+)=(\d+|\w{3,})", "one=1 two=22 three=abc x=y " * 3000))


LOOPS = numbers, objects, text, containers, generators, expression


def timed(loop):
    begin = time.process_time()
    loop()
    return time.process_time() - begin


print("ready", flush=True)
for _ in sys.stdin:
    print(*(f"{loop.__name__}={timed(loop):.6f}" for loop in LOOPS), flush=True)
