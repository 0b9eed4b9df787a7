"""CPython on musl in glibc's place: all of it is read from outside, and nothing done inside."""
import re

import pytest

import builds
from commands import Commands
from interpreters import built, eventually
from stacks import parse_backtrace
from test_consistency import judge

WAITING = """
import asyncio, threading

class Marked:
    pass

def waits():
    with lock:
        pass

async def leaf():
    await asyncio.sleep(1000)

async def main():
    await asyncio.create_task(leaf(), name="leaf")

kept = [Marked() for _ in range(3)]
lock = threading.Lock()
lock.acquire()
threading.Thread(target=waits, name="waiter", daemon=True).start()
print("ready", flush=True)
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def musl():
    found = built("musl") or pytest.skip("no CPython with musl: tests/built-root musl builds it")
    return found[-1]


def test_is_looked_at_and_not_acted_in(probe, musl):
    target = musl.run_source(builds.SCRIPT, name="tried.py")
    builds.looked_at(probe, target)
    assert "its C library is musl: an agent needs glibc 2.34 or later" in builds.not_acted_in(probe, target)
    builds.ends(target)
    builds.note("with musl", musl.version, look="yes", write="no", breakpoints="no")


@pytest.mark.parametrize("threads", [1, 10])
def test_no_wrong_stack(probe, musl, threads):
    target = musl.run("legal.py", threads)
    accepted, marked, _ = judge(probe, target, threads)
    assert accepted > marked * 9, f"{marked} of {marked + accepted} stacks could not be read"


def test_where_it_waits(probe, musl):
    """What its threads and tasks wait for; and that the C library, which has no unwind information, ends the native
    frames is said where Python's go on."""
    target = musl.run_source(WAITING, name="waiting.py")
    directory = probe.path / str(target.pid)

    def waits():
        seen = parse_backtrace((directory / "backtrace").read_text(), target.pid)
        waiter = next((thread for thread in seen.threads.values() if thread.name == "waiter"), None)
        return waiter and f"waits for lock likely held by {target.pid}" in waiter.state and \
            "epoll_pwait" in seen.threads[target.pid].state and waiter
    waiter = eventually(waits, what="both in their calls")
    assert [name for name, _, _ in waiter.frames][0] == "waits"
    assert any("unwind information" in line for line in waiter.lines), waiter.lines
    assert "(leaf) [waiting" in (directory / "tasks").read_text()
    assert "waits for Lock lock in waits" in (directory / "locks").read_text()
    assert re.search(r"^3 \d+ __main__\.Marked$", (directory / "heap" / "census").read_text(), re.M)


def test_profile(probe, musl):
    target = musl.run("legal.py", 1)
    commands = Commands(probe, target.pid)
    commands.run("ctl", "profile 497hz\n")
    eventually(lambda: "walk" in (commands.directory / "profile" / "top").read_text(), what="samples")
    commands.run("ctl", "profile off\n")
