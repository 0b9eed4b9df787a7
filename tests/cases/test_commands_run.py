"""Writing what takes its time: code that runs while its writer waits, is interrupted or killed, while others
read and write, and while the daemon ends."""
import contextlib
import errno
import os
import signal
import subprocess
import time

import pytest

from command_files import LONG, WAIT, code, ctl, said, target, waits_in_write, writing  # noqa: F401
from commands import failure, shell, write
from interpreters import eventually, patience


def test_ctrl_c(code, target):
    """It ends the code, the write with EINTR, and nothing else, not the program at its end."""
    with writing(code) as process:
        target.expect("running")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=patience(30))
    eventually(lambda: "KeyboardInterrupt" in code.read_text(), what="the end of the code")
    assert shell('echo 1 > "$1" && cat "$1"', code).stdout == "1\n"
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0, target.stderr()


def test_signals_that_mean_nothing(code, target):
    """The end of a background job, or a window's new size, stops no code; Ctrl-C after it does."""
    script = "trap : CHLD WINCH; sleep 0.2 & " + 'printf "%s" "$2" > "$1"'
    with writing(code, script=script) as process:
        target.expect("running")
        for _ in range(3):
            process.send_signal(signal.SIGWINCH)
            time.sleep(0.1)
        eventually(lambda: waits_in_write(process.pid), what="that it waits still")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=patience(30))
    eventually(lambda: "KeyboardInterrupt" in code.read_text(), what="the end of the code")


def test_killed_writer(code, target):
    with writing(code) as process:
        target.expect("running")
        process.kill()
        process.communicate(timeout=patience(30))
    eventually(lambda: "KeyboardInterrupt" in code.read_text(), what="the end of the code")
    assert shell('echo 1 > "$1" && cat "$1"', code).stdout == "1\n"


def test_reads_while_it_waits(probe, code, target):
    """A command that runs is in nobody's way: not at the same file, not elsewhere."""
    with writing(code):
        target.expect("running")
        assert f"Process {target.pid}:" in probe.read(target.pid, "backtrace")
        assert probe.read(target.pid, "eval") == ""
        write(code.parent / "ctl", "interpreter 0\n")
        assert code.stat().st_size == 0 and os.access(code, os.W_OK)


def test_others_can_be_interrupted(code, target):
    """Ctrl-C of one that waits behind another's code."""
    with writing(code), writing(code) as second:
        target.expect("running")
        second.send_signal(signal.SIGTERM)
        second.communicate(timeout=patience(30))


@pytest.mark.parametrize("how", ["SIGTERM", "umount -f"])
def test_end_while_commands_run(probe, any_python, how):
    """The daemon's end interrupts what runs and waits for it; the writers get an error."""
    target = any_python.run_source(WAIT)
    mount = probe.mount()
    path = mount.path / str(target.pid) / "eval"
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(writing(path)) for _ in range(4)]
        target.expect("running")
        if how == "SIGTERM":
            mount.process.terminate()
        else:
            subprocess.run(["umount", "-f", mount.path], capture_output=True)
        assert mount.process.wait(patience(30)) == 0
        for writer in writers:
            assert "rror" in writer.communicate(timeout=patience(30))[1]
    subprocess.run(["umount", "-l", mount.path], capture_output=True)
    probe.extra.remove(mount)
    mount.closed = True
    mount.path.rmdir()
    target.stdin.close()
    assert target.process.wait(patience(30)) == 0, target.stderr()


SELF = """
import errno, os, sys, threading, time
here = os.path.join(sys.argv[1], str(os.getpid()))
def ask(number):
    fd = os.open(f"{here}/eval", os.O_RDWR)
    os.write(fd, f"{number} * 2\\n".encode())
    answers.append(int(os.read(fd, 100)) == number * 2)
answers = []
threads = [threading.Thread(target=ask, args=[i]) for i in range(10)]
try:
    ask(1)
except OSError as error:
    print(error.errno == errno.EDEADLK)
for thread in threads: thread.start()
while any(thread.is_alive() for thread in threads): time.sleep(0.01)
ask(1)
print(all(answers), len(answers))
with open(f"{here}/threads/{threading.get_native_id()}/frames/0/eval", "w") as file:
    file.write("answers.clear()\\n")
print(answers)
"""


def test_asks_itself(probe, any_python):
    """A program that writes to its own files, from many threads at once: none of them can be borrowed
    while it waits for us."""
    target = any_python.run_source(SELF, probe.path, ready=False)
    target.expect("True")
    target.expect("True 11")
    target.expect("[]")


def test_backtrace_of_a_writer(probe, any_python):
    """A thread that waits in a write is read like any other."""
    source = "import sys; print('ready'); sys.stdin.readline(); open(sys.argv[1], 'w').write(sys.argv[2])"
    other = any_python.run_source(WAIT)
    writer = any_python.run_source(source, probe.path / str(other.pid) / "eval", LONG)
    writer.send("go")
    other.expect("running")
    assert "<module>" in probe.read(writer.pid, "backtrace")
    assert f"Process {other.pid}:" in probe.read(other.pid, "backtrace")


MANY = """
import os, sys, threading
outcomes = {}
def write():
    fd = os.open(sys.argv[1], os.O_WRONLY)
    try:
        os.write(fd, sys.argv[2].encode())
    except OSError as error:
        outcomes[error.errno] = outcomes.get(error.errno, 0) + 1
        if error.errno == 11:
            print("refused\\n", end="", flush=True)
for _ in range(int(sys.argv[3])):
    threading.Thread(target=write, daemon=True).start()
sys.stdin.read()
"""


def test_too_many(probe, any_python, target, code):
    """More than 256 at once: the rest is told to try again, in words too."""
    writer = any_python.run_source(MANY, code, LONG, 260, ready=False)
    for _ in range(4):
        writer.expect("refused")
    with pytest.raises(OSError) as caught:
        write(code.parent / "ctl", "interpreter 1\n")
    assert caught.value.errno == errno.EAGAIN
    assert "commands run already" in said(code.parent / "ctl")
    assert f"Process {target.pid}:" in probe.read(target.pid, "backtrace")
    writer.close()
    eventually(lambda: shell('echo 1 > "$1" && cat "$1"', code).stdout == "1\n", what="room again")


def test_too_much(code):
    """What makes no statement may wait, up to a limit."""
    fd = os.open(code, os.O_WRONLY)
    try:
        piece = b"(" * (64 << 10)
        for _ in range(16):
            assert os.write(fd, piece) == len(piece)
        assert failure(os.write, fd, b"(") == errno.EFBIG
        assert failure(os.write, fd, b"1)\n") == errno.EFBIG  # the rest of the same
    finally:
        os.close(fd)
    assert code.read_text() == ("error: more than 1 MiB was written that makes no complete "
                                "statement: nothing of it was used\n")


@pytest.mark.long
def test_exit_with_code_that_does_not_end(code, target):
    """Nobody can interrupt a process that is exiting: what it left to do is ended for it."""
    begun = time.monotonic()
    result = shell('python3 -c "import os; os.write(1, b\'while True: pass\')" > "$1"', code)
    assert result.returncode == 0
    assert time.monotonic() - begun < patience(40)
    assert "KeyboardInterrupt" in code.read_text()


def test_eval_everywhere(probe, python):
    """On every version that an agent knows; on others the words say which."""
    target = python.run_source("def f(secret):\n    print('ready')\n    input()\nf(41)")
    path = probe.path / str(target.pid) / "eval"
    if python.version < (3, 10):
        assert failure(write, path, "1\n") == errno.EOPNOTSUPP
        assert "3.10" in path.read_text() and "3.9" in path.read_text()
        return
    assert "Agent: none\n" in probe.read(target.pid, "status")
    assert shell('printf "secret + 1\\nfor i in range(3):\\n  print(i)\\n" > "$1"; cat "$1"',
                 path).stdout == "42\n0\n1\n2\n"
    for place, outcome in [("eval", None), ("frames/0/eval", None), ("frames/1/eval", errno.EIO)]:
        path = probe.path / str(target.pid) / "threads" / str(target.pid) / place
        if outcome:
            assert failure(write, path, "secret\n") == outcome
            assert path.read_text().endswith("NameError: name 'secret' is not defined\n")
        else:
            write(path, "secret\n")
            assert path.read_text() == "41\n"
    ctl = probe.path / str(target.pid) / "ctl"
    for shown in (ctl.read_text(), probe.read(target.pid, "status")):
        assert "Agent: running, connected\n" in shown and "AgentOrigin: injected\n" in shown
    write(ctl, "attach\nstatus\ndetach\n")
    assert ctl.read_text().startswith("Agent: none\n") and said(ctl).endswith("Agent: none\n")
    target.send("")
    assert target.process.wait(patience(30)) == 0


@pytest.mark.python(minimum=(3, 10))
@pytest.mark.parametrize("timeout", ["", "1000"])
def test_program_that_only_waits(probe, python, timeout):
    """All of its threads wait for a lock, as an idle server's do."""
    target = python.run_source(
        "import threading\n"
        f"for _ in range(3): threading.Thread(target=threading.Event().wait, args=[{timeout}],"
        " daemon=True).start()\n"
        f"print('ready')\nthreading.Event().wait({timeout})")
    path = probe.path / str(target.pid) / "eval"
    write(path, "threading.active_count()\n")
    assert path.read_text() == "4\n"
