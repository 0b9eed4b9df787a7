"""Small programs that are debugged twice: by CPython's own debugger (tests/targets/bdb_oracle.py), and through the
mount."""
import errno
import json
import os
import select
import subprocess
import textwrap
import time

from commands import Commands
from interpreters import DEADLINE, patience

HEAD = """
import sys
def show(*what):
    pass
"""
TAIL = """
if len(sys.argv) == 1:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        main()
    except (TypeError, UnboundLocalError):  # after a jump
        pass
    print("done", flush=True)
    sys.stdin.readline()
"""

# Each line is a place where one may stop; no expression takes two.
PROGRAMS = {
    "calls": """
        def leaf(x):
            y = x * 2
            return y
        def middle(x):
            a = leaf(x)
            b = leaf(a)
            return a + b
        def main():
            total = 0
            for i in range(3):
                total += middle(i)
            return total
    """,
    "recursion": """
        def fact(n):
            if n < 2:
                return 1
            below = fact(n - 1)
            return n * below
        def even(n):
            return n == 0 or odd(n - 1)
        def odd(n):
            return n != 0 and even(n - 1)
        def main():
            x = fact(5)
            y = even(6)
            return x, y
    """,
    "exceptions": """
        def careful(x):
            try:
                if x % 2:
                    raise ValueError(x)
                y = 1 // x
            except ZeroDivisionError as error:
                y = str(error)
            except ValueError:
                y = -x
            else:
                y = y + 1
            finally:
                show(y)
            return y
        def deep(n):
            if n == 0:
                raise KeyError("bottom")
            deep(n - 1)
        def main():
            found = []
            for x in range(4):
                found.append(careful(x))
            try:
                deep(3)
            except KeyError as error:
                found.append(error.args)
            return found
    """,
    "generators": """
        def count(n):
            i = 0
            while i < n:
                got = yield i
                i += got or 1
        def chained(n):
            yield from count(n)
            yield -1
        def main():
            seen = []
            for x in chained(3):
                seen.append(x)
            g = count(9)
            next(g)
            seen.append(g.send(3))
            g.close()
            squares = sum(x * x for x in seen)
            return seen, squares
    """,
    "comprehensions": """
        def main():
            rows = [[1, 2], [3], []]
            flat = [x for row in rows for x in row]
            pairs = {x: len(str(x)) for x in flat}
            odd = {x for x in flat if x % 2}
            key = lambda x: -x
            order = sorted(flat, key=key)
            return pairs, odd, order
    """,
    "classes": """
        import contextlib
        def twice(function):
            def wrapper(*args):
                function(*args)
                return function(*args)
            return wrapper
        class Thing:
            count = 0
            def __init__(self, name):
                self.name = name
                Thing.count += 1
            @property
            def upper(self):
                return self.name.upper()
            @twice
            def grow(self, by):
                self.name += by
                return len(self.name)
            @staticmethod
            def plain(x):
                return x
            def __enter__(self):
                return self
            def __exit__(self, *what):
                self.name = ""
                return True
        def main():
            with Thing("a") as thing:
                n = thing.grow("b")
                u = thing.upper
                raise ValueError(n)
            p = Thing.plain(u)
            return p, thing.name
    """,
    "bodies": """
        def main():
            p = 1
            class Local:
                z = p
            def one(): return p
            for x in range(2): p += x
            made = Local()
            return made.z, one()
    """,
    "coroutines": """
        class Wait:
            def __await__(self):
                got = yield "wait"
                return got
        async def leaf(x):
            got = await Wait()
            return got + x
        async def agen(n):
            for i in range(n):
                yield i
        async def outer():
            a = await leaf(1)
            b = 0
            async for x in agen(3):
                b += x
            return a, b
        def main():
            coroutine = outer()
            said = coroutine.send(None)
            try:
                coroutine.send(10)
            except StopIteration as stop:
                said = stop.value
            return said
    """,
    "control flow": """
        def main():
            n = 0
            while True:
                n += 1
                if n == 2:
                    continue
                if n > 4:
                    break
            else:
                n = -1
            for x in range(2):
                pass
            else:
                n += 10
            a = b = n
            if a: b = 1
            del a
            assert b, "b"
            t = (b, n)
            x, *rest = t
            return rest
    """,
    "asyncio": """
        import asyncio
        async def work(name, n):
            total = 0
            for i in range(n):
                total += i
                await asyncio.sleep(0)
            return name, total
        async def both():
            found = await asyncio.gather(work("a", 2), work("b", 3))
            return found
        def main():
            return asyncio.run(both())
    """,
}

# In which stepping is the same in all versions of pdb: it does not see a coroutine return, stops at each turn of a loop
# on one line, and no longer at a class's own line.
STEPPED = ["calls", "recursion", "exceptions", "generators", "classes", "control flow"]


def source(name):
    return HEAD + textwrap.dedent(PROGRAMS[name]) + TAIL


def write(python, name):
    """The file's name, in the directory of the victims."""
    script = f"debugged_{name.replace(' ', '_')}.py"
    (python.directory / script).write_text(source(name))
    return script


def lines(python, script):
    """All that code runs on, but what defines things."""
    code = ("import sys\ndef walk(code):\n for const in code.co_consts:\n  if hasattr(const, 'co_code'):\n"
            "   yield from (line for *_, line in const.co_lines() if line and line > const.co_firstlineno)\n"
            "   yield from walk(const)\n"
            "print(*sorted(set(walk(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')))))")
    said = subprocess.run(python.command("-c", code, python.path(script)), capture_output=True, check=True)
    return list(map(int, said.stdout.split()))


def oracle(python, script, breakpoints, commands=(), once=False):
    """[[what, line, function, locals or value], ...]; once: breakpoints hit no more than that."""
    asked = json.dumps({"breakpoints": breakpoints, "commands": list(commands), "once": once})
    said = subprocess.run(python.command(python.path("bdb_oracle.py"), python.path(script)), input=asked.encode(),
                          capture_output=True, timeout=patience(60))
    assert said.returncode == 0, said.stderr.decode()
    return json.loads(said.stdout)


def set_breakpoints(probe, pid, text):
    with open(probe.path / str(pid) / "breakpoints", "wb", buffering=0) as file:
        file.write(text.encode())


class Events:
    """What happens from now on, one at a time."""

    def __init__(self, probe, pid):
        self.fd = os.open(probe.path / str(pid) / "events", os.O_RDONLY | os.O_NONBLOCK)
        self.rest = b""

    def _line(self, end):
        while b"\n" not in self.rest:
            assert select.select([self.fd], [], [], max(0, end - time.monotonic()))[0], "no such event"
            got = os.read(self.fd, 1 << 16)
            assert got, "the process ended"
            self.rest += got
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def next(self, kind):
        """The next of that kind."""
        end = time.monotonic() + patience(DEADLINE)
        while True:
            event = self._line(end)
            if event["kind"] == kind:
                return event

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.fd)


def refused(probe, pid, tid, command):
    """What a thread's ctl says of a command that must fail."""
    words = Commands(probe, pid).refused(f"threads/{tid}/ctl", command + "\n")
    assert words[0] == errno.EINVAL
    return words[1]


def tell(probe, pid, tid, command):
    """What is written to a stopped thread's ctl."""
    fd = os.open(probe.path / str(pid) / "threads" / str(tid) / "ctl", os.O_WRONLY)
    try:
        os.write(fd, command.encode() + b"\n")
    finally:
        os.close(fd)
