"""Threads that an agent holds, and telling them what to do."""
import pathlib

import agent_client as agent
from agents import connect, start
from interpreters import eventually

VERBS = {"step": agent.STEP, "next": agent.NEXT, "finish": agent.FINISH, "return": agent.TO_RETURN,
         "continue": agent.CONTINUE}


def done(answer):
    """What must succeed."""
    assert answer.error == 0, answer.words
    return answer


def wait_stopped(client, tid, since=0):
    """How a thread is held, once it is, by another stop than that of since_ns."""
    def held():
        stop = client.record.threads().get(tid)
        return stop if stop and stop["since_ns"] != since else None
    return eventually(held, what=f"a stop of {tid}")


def reads_input(tid):
    """Whether a thread sleeps in read(2) of its standard input: 0 of x86-64 (proc(5), syscall)."""
    return pathlib.Path(f"/proc/{tid}/syscall").read_text().split()[:2] == ["0", "0x0"]


def waits_for_lock(tid):
    """Whether a thread sleeps in futex(2), 202 of x86-64."""
    return pathlib.Path(f"/proc/{tid}/syscall").read_text().split()[0] == "202"


def hogs_gil(pid):
    """Whether tests/targets/gil_hog.py has begun to: its main thread is in clock_nanosleep(2), 230 of x86-64."""
    return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == "230"


def paused(python, source, **options):
    """A program that is held at the first line that follows once it has read from standard input; its conversation."""
    target = start(python, source, **options)
    client = connect(target)
    eventually(lambda: reads_input(target.pid), what="that it reads from standard input")
    done(client.order(agent.PAUSE))
    target.send("")
    wait_stopped(client, target.pid)
    return target, client


def tell(client, tid, command):
    """Lets a held thread go on; how it is held next."""
    since = client.record.threads()[tid]["since_ns"]
    done(client.order(VERBS[command], tid))
    return wait_stopped(client, tid, since)
