"""Programs that import the agent themselves, and conversations with it."""
import contextlib
import os
import shutil
import textwrap

import pytest

import agent_client as agent
from interpreters import patience
from mount import build

LIBRARY = build() / "agent" / "probe-agent.so"
NAME = "probing.abi3.so"

# 3.12 and later warn of fork() in a process with threads, and the agent's is one
QUIET = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}

IDLE = """
import probing, sys
print("ready", flush=True)
sys.stdin.read()
"""


def library(python):
    """The directory that holds the module, outside and inside the interpreter's root."""
    directory = python.directory / "agent"
    if not directory.is_dir():
        directory.mkdir()
        shutil.copy(LIBRARY, directory / NAME)
    return directory, python.path("agent")


STARTER = """
import ctypes, struct

def start():
    ctypes.PyDLL({path!r}).probe_agent_start(struct.pack("=QII", 0, 2, 0))  # imported

start()
"""


def starter(python):
    """A module that starts the agent where that isn't one itself: in a free-threaded interpreter."""
    directory = python.directory / "starter"
    directory.mkdir(exist_ok=True)
    (directory / "probing.py").write_text(STARTER.format(path=f"{library(python)[1]}/{NAME}"))
    return python.path("starter")


def start(python, source=IDLE, *args, env=None, **options):
    inside = starter(python) if python.source == "nogil" else library(python)[1]
    return python.run_source(textwrap.dedent(source), *args,
                             env={"PYTHONPATH": inside, **QUIET, **(env or {})}, **options)


def connect(target, pid=None, **options):
    return agent.Client(pid or target.pid, LIBRARY, NAME, **options)


def descriptors(pid):
    """What each descriptor is; of a socket just that it is one."""
    return sorted(link.partition(":")[0] for link in links(pid).values())


def links(pid):
    """What each descriptor is; one that is closed meanwhile is none."""
    found = {}
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found[fd] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return found


def ended(target, before=""):
    """Its exit status, and nothing on standard error but what was there before."""
    target.stdin.close()
    status = target.process.wait(patience(30))
    assert target.stderr() == before
    return status


@pytest.fixture(autouse=True)
def clients():
    """Conversations that a test leaves open are closed."""
    yield
    for client in list(agent.Client.open):
        client.close()
