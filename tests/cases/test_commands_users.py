"""Writing: who may, and how much."""
import errno
import os
import re
import subprocess

import pytest

from command_files import WAIT, chosen
from commands import write
from test_access import DENIED, answer, run_as

pytestmark = pytest.mark.attack


def test_second_user(probe, any_python, nobody):
    """Replies are for those who asked; nobody else's process can be told anything."""
    mount = probe.mount("allow_other")
    mine, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    path = mount.path / str(mine.pid) / "ctl"
    write(path, "interpreter 3\n")
    state, _, reply = path.read_text().partition("\n\nLastReply: ")
    assert state.endswith("Interpreter: 3\nOnCrash: off") and reply.endswith("\nInterpreter: 3\n")
    # nobody sees the state, and not what root was answered
    shown = run_as(nobody, "cat", path).stdout
    assert shown.endswith("Interpreter: 3\nOnCrash: off\n") and shown.count("Interpreter: 3") == 1
    result = run_as(nobody, "sh", "-c", f"echo 'interpreter 4' > {path} && cat {path}")
    assert re.search("\nInterpreter: 4\nOnCrash: off\n\nLastReply: .*\nInterpreter: 4\n$", result.stdout), result.stderr
    assert re.search("\nInterpreter: 4\nOnCrash: off\n\nLastReply: .*\nInterpreter: 3\n$", path.read_text())

    path = mount.path / str(roots.pid) / "ctl"
    for command in (["dd", f"of={path}", "conv=notrunc", "if=/dev/null"], ["test", "-w", path],
                    ["truncate", "-s0", path], ["sh", "-c", f"echo attach > {path}"],
                    ["sh", "-c", f"echo attach >> {path}"], ["sh", "-c", f": <> {path}"]):
        assert run_as(nobody, *command).returncode != 0
    assert "Interpreter: 0\n" in path.read_text()


def test_descriptor_handed_over(probe, any_python, nobody):
    """Each write is checked: an open file gives its heir no more than their own rights."""
    mount = probe.mount("allow_other")
    path = mount.path / str(any_python.run_source(WAIT).pid) / "ctl"
    fd = os.open(path, os.O_RDWR)
    try:
        script = f"import os; os.write({fd}, b'interpreter 9\\n')"
        result = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
             *any_python.command("-c", script)], pass_fds=[fd], capture_output=True, text=True)
        assert result.returncode == 1 and "PermissionError" in result.stderr
    finally:
        os.close(fd)
    assert chosen(path) == 0


def test_hidden_processes(probe, any_python, nobody):
    """A process that hides its memory from its user obeys only root."""
    mount = probe.mount("allow_other", "hidepid=0")
    hide = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0); print('ready'); sys.stdin.read()"
    path = mount.path / str(any_python.run_source(hide, user=nobody).pid) / "ctl"
    assert answer(run_as(nobody, "cp", "/dev/null", path)) in DENIED
    write(path, "interpreter 1\n")


# Opens a file so many times, and writes to each from a thread, where there is something to write; says what came of the
# last one
MANY = """
import os, sys, threading, time
path, text, n = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
def use(fd):
    try: os.write(fd, text)
    except OSError as error: failed.append(error.errno)
failed = []
try:
    for i in range(n):
        fd = os.open(path, os.O_RDWR if text else os.O_RDONLY)
        if text: threading.Thread(target=use, args=(fd,), daemon=True).start()
except OSError as error: failed.append(error.errno)
while text and not failed: time.sleep(0.01)
print(i, failed[0], flush=True)
sys.stdin.readline()
os._exit(0)
"""


@pytest.fixture
def crowd(any_python, nobody):
    started = []

    def start(path, text, n):
        process = subprocess.Popen(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
             *any_python.command("-c", MANY, path, text, n)],
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        return [int(word) for word in process.stdout.readline().split()]
    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.attack
def test_commands_of_one_user(probe, any_python, nobody, crowd):
    mount = probe.mount("allow_other")
    mine, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    path = mount.path / str(mine.pid) / "eval"
    assert crowd(path, "__import__('time').sleep(60)\n", 65)[1] == errno.EAGAIN
    assert "you run 64 commands already: try again" in run_as(nobody, "cat", path.parent / "errors").stdout
    write(mount.path / str(roots.pid) / "query", "SELECT 1;")  # root goes on


@pytest.mark.attack
def test_event_readers_of_one_user(probe, any_python, nobody, crowd):
    mount = probe.mount("allow_other")
    mine, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    path = mount.path / str(mine.pid) / "events"
    assert crowd(path, "", 300) == [256, errno.ENFILE]
    assert "you read events 256 times already: close some" in run_as(nobody, "cat", path.parent / "errors").stdout
    for name in str(roots.pid), str(mine.pid), "all":
        os.close(os.open(mount.path / name / "events", os.O_RDONLY))
