"""Steps: what pdb does on the same commands is what must happen."""
import json
import subprocess

import pytest

import agent_client as agent
from agents import clients  # noqa: F401, a fixture
from interpreters import eventually
from stopping import done, paused, tell

pytestmark = pytest.mark.python(minimum=(3, 10))

HEAD = """
import os, sys
try:
    import probing
except ImportError: # the oracle has none
    pass
"""
TAIL = """
print("ready", flush=True)
os.read(0, 100)
main()
print("end", flush=True)
os.read(0, 100)
"""

PROGRAMS = {
    "calls": """
def leaf(x):
    y = x + 1
    return y

def branch(x):
    total = 0
    for i in range(2):
        total += leaf(
            i)
    return total

def main():
    a = branch(1)
    b = branch(leaf(
        2))
    return a + b
""",
    "recursion": """
def fact(n):
    if n < 2:
        return 1
    rest = fact(n - 1)
    return n * rest

def main():
    x = fact(3)
    return x
""",
    "exceptions": """
class Context:
    def __enter__(self):
        return self

    def __exit__(self, *problem):
        return True

def fail(x):
    try:
        if x:
            raise ValueError(x)
    finally:
        x = 0

def outer(x):
    fail(x)
    return x

def main():
    try:
        outer(0)
        outer(1)
    except ValueError as error:
        a = error
    else:
        a = 2
    with Context():
        outer(3)
        a = 4
    return a
""",
    "generators": """
def numbers(n):
    for i in range(n):
        got = yield i
    return n

def all_of(n):
    result = yield from numbers(n)
    return result

def main():
    total = 0
    for i in numbers(2):
        total += i
    for i in all_of(1):
        total += i
    one = numbers(3)
    next(one)
    one.close()
    return total
""",
    "coroutines": """
import asyncio

async def leaf(x):
    await asyncio.sleep(0)
    return x

async def work():
    a = await leaf(1)
    b = await leaf(2)
    return a + b

loop = asyncio.new_event_loop()  # not main()'s: bdb would stop in what its end runs

def main():
    x = loop.run_until_complete(work())
    return x
""",
    "callbacks": """
def key(x):
    y = -x
    return y

class Number:
    def __init__(self, value):
        self.value = value

    def __add__(self, other):
        value = self.value + other
        return value

    @property
    def double(self):
        value = self.value * 2
        return value

def main():
    a = sorted([1, 2], key=key)
    b = Number(3)
    c = b + 1
    d = b.double
    return c + d
""",
}


def write(python, name):
    source = HEAD + PROGRAMS[name] + TAIL
    (python.directory / f"{name}.py").write_text(source)
    return source, python.path(f"{name}.py")


def oracle(python, path, commands):
    out = subprocess.run(python.command(python.path("stepper.py"), path, *commands), input="\n", text=True,
                         capture_output=True, timeout=60)
    assert out.returncode == 0, out.stderr
    return [stop[:1] for stop in json.loads(out.stdout)]


def stops(python, source, commands):
    target, client = paused(python, source)
    found = [[client.record.threads()[target.pid]["line"]]]
    for command in commands:
        found.append([tell(client, target.pid, command)["line"]])
    done(client.order(agent.CONTINUE, target.pid))
    target.expect("end")
    assert target.stderr() == ""
    target.close()
    client.close()
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("commands", [
    ["step"] * 14,
    ["next"] * 3,
    ["step"] + ["next"] * 7,
    ["step", "next", "step", "next", "next", "next", "next"],
], ids=["step", "next", "into", "mixed"])
def test_as_pdb(python, name, commands):
    source, path = write(python, name)
    wanted = oracle(python, path, commands)
    end = [source.split("\n").index('print("end", flush=True)') + 1]
    wanted = wanted[:wanted.index(end) + 1] if end in wanted else wanted  # then it waits for standard input
    commands = commands[:len(wanted) - 1]
    assert stops(python, source, commands) == wanted
