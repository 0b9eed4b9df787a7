"""Writing: how shells and programs write to command files, what they are told, who may.

Verbs of ctl stand in where it doesn't matter what runs; code that waits (`eval`) where it does.
"""
import array
import contextlib
import errno
import os
import pathlib
import select
import signal
import socket
import subprocess
import threading
import time

import pytest

from interpreters import eventually
from test_access import DENIED, answer, run_as

WAIT = "import sys; print('ready'); sys.stdin.read()"
# one line and so one write(2); says on the target's own output that it has begun
LONG = r"exec('import os, time\nos.write(1, b\'running\\n\')\nwhile True: time.sleep(0.01)')" + "\n"
ERROR = "error: unknown verb; there are attach [remote-exec], detach, status, interpreter N\n"


def shell(script, *args, program="bash", **options):
    """A script that finds its arguments in $1 and on."""
    return subprocess.run([program, "-c", script, program, *map(str, args)], text=True,
                          capture_output=True, timeout=60,
                          env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, **options)


def failure(function, *args):
    with pytest.raises(OSError) as caught:
        function(*args)
    return caught.value.errno


def write(path, text):
    """One write(2)."""
    fd = os.open(path, os.O_WRONLY)
    try:
        return os.write(fd, text.encode())
    finally:
        os.close(fd)


@pytest.fixture
def target(any_python):
    return any_python.run_source(WAIT)


@pytest.fixture
def ctl(probe, target):
    return probe.path / str(target.pid) / "ctl"


@pytest.fixture
def code(probe, target):
    return probe.path / str(target.pid) / "eval"


def chosen(ctl):
    """The interpreter that the last verb chose."""
    lines = ctl.read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Interpreter: ")).split()[1])


def said(ctl):
    """The last reply, without the state in front of it."""
    text = ctl.read_text()
    return text[text.index("Interpreter: "):].split("\n", 1)[1]


@pytest.mark.parametrize("program", ["bash", "dash"])
def test_a_bad_word(ctl, program):
    """As in DESIGN: the shell says it, exits 1, and the next read says why."""
    result = shell('echo nonsense > "$1"', ctl, program=program)
    assert result.returncode != 0
    assert "rror" in result.stderr
    if program == "bash":
        assert "write error: Invalid argument" in result.stderr and result.returncode == 1
    assert said(ctl) == ERROR + "  nonsense\n  ^\n"
    errors = (ctl.parent / "errors").read_text().splitlines()
    assert " ctl EINVAL " in errors[-1] and "unknown verb" in errors[-1]


@pytest.mark.parametrize("text, caret", [
    ("interpreter x", 12), ("interpreter", 11), ("interpreter 1 2", 14), ("  nonsense", 2),
    ("interpreter -1", 12), ("interpreter 1x", 12), ("attach now", 7)])
def test_caret(ctl, text, caret):
    before = chosen(ctl)
    assert failure(write, ctl, text + "\n") == errno.EINVAL
    assert said(ctl).splitlines()[-2:] == ["  " + text, "  " + " " * caret + "^"]
    assert chosen(ctl) == before


def test_words_are_escaped(ctl):
    assert failure(write, ctl, "\x1b[31m\x07\n") == errno.EINVAL
    assert "\\x1b[31m\\x07" in said(ctl) and "\x1b" not in ctl.read_text()


WRITERS = {
    "bash echo": ("bash", 'echo "interpreter 5" > "$1"'),
    "dash echo": ("dash", 'echo "interpreter 5" > "$1"'),
    "append": ("bash", 'echo "interpreter 5" >> "$1"'),
    "read and write": ("bash", 'echo "interpreter 5" 1<> "$1"'),
    "printf without a newline": ("bash", 'printf "interpreter 5" > "$1"'),
    "two lines": ("bash", 'printf "interpreter 4\\ninterpreter 5\\n" > "$1"'),
    "two writes": ("bash", '{ echo -n inter; echo "preter 5"; } > "$1"'),
    "two programs": ("bash", '{ /bin/echo -n inter; /bin/echo -n "preter 5"; } > "$1"'),
    "without a close": ("bash", 'python3 -c "import os; os.write(1, b\'interpreter 5\')" > "$1"'),
    "cat": ("bash", 'echo "interpreter 5" | cat > "$1"'),
    "tee": ("bash", 'printf "interpreter 5" | tee "$1"'),
    "byte by byte": ("bash", 'printf "interpreter 5" | dd bs=1 of="$1" status=none'),
    "python": ("bash", 'python3 -c "import sys; open(sys.argv[1], \'w\').write(\'interpreter 5\')" "$1"'),
    "python, append": ("bash", 'python3 -c "open(\'$1\', \'a\').write(\'interpreter 5\')"'),
    "cp": ("bash", 'cp --no-preserve=all <(printf "interpreter 5") "$1"'),
    "a subshell of a shell that holds it": (
        "bash", 'exec 3> "$1"; (echo -n inter >&3); cat <(echo -n preter) >&3; echo " 5" >&3'),
}


@pytest.mark.parametrize("how", WRITERS)
def test_ways_to_write(ctl, how):
    """However a text is cut and whoever closes, it means the same."""
    write(ctl, "interpreter 1\n")
    program, script = WRITERS[how]
    result = shell(script, ctl, program=program)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert chosen(ctl) == 5
    assert said(ctl).endswith("Interpreter: 5\n")


def test_exits_where_an_ancestor_holds_it(ctl):
    """A child's exit closes what it inherited, which is no end of the text."""
    result = shell('exec 3> "$1"; echo -n inter >&3; true; (exit 0); /bin/true; echo -n >&3;'
                   'echo "preter 6" >&3; exec 3>&-', ctl)
    assert result.returncode == 0, result.stderr
    assert chosen(ctl) == 6


def test_first_error_ends_the_text(ctl):
    """Line by line as bash's printf, or at once as dash's: nothing after the error is done."""
    for program in ("bash", "dash"):
        write(ctl, "interpreter 1\n")
        result = shell('printf "interpreter 2\\nnonsense\\ninterpreter 3\\n" > "$1"', ctl,
                       program=program)
        assert result.returncode != 0
        assert chosen(ctl) == 2
        assert said(ctl) == f"Interpreter: 2\n{ERROR}  nonsense\n  ^\n"


def test_error_and_then_another_try(ctl):
    """A shell that holds it open goes on after an error."""
    result = shell('exec 3<> "$1"; echo nonsense >&3; echo "interpreter 3" >&3; cat <&3', ctl)
    assert "Invalid argument" in result.stderr
    assert result.stdout.endswith("  ^\nInterpreter: 3\n")
    assert chosen(ctl) == 3


def test_retries_do_nothing_twice(ctl):
    """Python's buffered files try again at close what failed at flush."""
    before = len((ctl.parent / "errors").read_text().splitlines())
    with pytest.raises(OSError):
        with open(ctl, "w") as file:
            file.write("interpreter 2\nnonsense\n")
    assert said(ctl).count("Interpreter: 2") == 1
    assert len((ctl.parent / "errors").read_text().splitlines()) == min(before + 1, 8)


def test_own_reply(ctl):
    """A handle reads what it was answered, as from a pipe, and no other's."""
    result = shell('exec 3<> "$1" 4<> "$1"; echo "interpreter 3" >&3; echo "interpreter 4" >&4;'
                   'echo "interpreter 5" >&3; read -u 3 line; echo "$line"; cat <&3; echo -;'
                   'cat <&3; echo "interpreter 6" >&3; cat <&3; echo -; cat <&4', ctl)
    assert result.stderr == ""
    assert result.stdout == ("Interpreter: 3\nInterpreter: 5\n-\nInterpreter: 6\n-\n"
                             "Interpreter: 4\n")
    # what was read there is not shown again, what was said last is
    assert said(ctl) == "Interpreter: 6\n"


def test_offsets_mean_nothing(ctl):
    fd = os.open(ctl, os.O_RDWR)
    try:
        os.write(fd, b"interpreter 7\n")
        assert failure(os.lseek, fd, 0, os.SEEK_SET) == errno.ESPIPE
        assert failure(os.pread, fd, 10, 0) == errno.ESPIPE
        assert os.read(fd, 3) == b"Int" and os.read(fd, 100) == b"erpreter: 7\n"
        assert os.read(fd, 100) == b""
    finally:
        os.close(fd)
    fd = os.open(ctl, os.O_WRONLY)
    try:
        os.lseek(fd, 1000, os.SEEK_SET)
        os.write(fd, b"interpreter 8\n")
        assert failure(os.read, fd, 10) == errno.EBADF
    finally:
        os.close(fd)
    assert chosen(ctl) == 8


def test_poll(ctl):
    """Writing and reading never wait for each other, so both are always possible."""
    fd = os.open(ctl, os.O_RDWR | os.O_NONBLOCK)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN | select.POLLOUT)
        assert poll.poll(0) == [(fd, select.POLLIN | select.POLLOUT)]
        assert os.read(fd, 10) == b""
        assert os.write(fd, b"interpreter 1\n") == 14
        assert select.select([fd], [fd], [], 0) == ([fd], [fd], [])
        assert os.read(fd, 100) == b"Interpreter: 1\n"
    finally:
        os.close(fd)


def test_truncating(ctl):
    """It holds nothing, so that this does nothing."""
    write(ctl, "interpreter 2\n")
    assert shell('truncate -s0 "$1" && : > "$1"', ctl).returncode == 0
    fd = os.open(ctl, os.O_WRONLY | os.O_TRUNC)
    os.ftruncate(fd, 0)
    assert failure(os.ftruncate, fd, 1) == errno.EPERM
    os.close(fd)
    assert chosen(ctl) == 2 and said(ctl) == "Interpreter: 2\n"
    assert failure(os.truncate, ctl, 5) == errno.EPERM


def test_what_stays_refused(ctl):
    top = ctl.parent
    status = top / "status"
    assert failure(os.open, status, os.O_WRONLY) == errno.EACCES
    assert failure(os.open, status, os.O_RDWR) == errno.EACCES
    assert failure(os.truncate, status, 0) in (errno.EPERM, errno.EACCES)
    assert not os.access(status, os.W_OK) and os.access(status, os.R_OK)
    assert os.access(ctl, os.W_OK) and os.access(ctl, os.R_OK) and not os.access(ctl, os.X_OK)
    for change in ("touch $1", "chmod 666 $1", "chown nobody $1", "mv $1 $1.old", "rm -f $1",
                   "ln $1 $1.new", "ln -s $1 $1.new", "mkdir $1.d", "echo > $1.new"):
        result = shell(change.replace("$1", '"$1"'), ctl)
        assert result.returncode != 0, change
    assert ctl.stat().st_mode & 0o777 == 0o600


def test_attributes_of_each_open(ctl):
    """Each walk finds an inode of its own, and the same number."""
    fds = [os.open(ctl, os.O_WRONLY) for _ in range(3)]
    assert len({os.fstat(fd).st_ino for fd in fds} | {ctl.stat().st_ino}) == 1
    for fd in fds:
        os.close(fd)


def test_long_writes(ctl):
    """One write(2) of several MiB reaches the daemon in pieces, whose borders don't matter."""
    text = b"interpreter 3\n" * 200_000 + b"interpreter 4\n"
    fd = os.open(ctl, os.O_WRONLY)
    try:
        assert os.write(fd, text) == len(text)
        assert chosen(ctl) == 4
        assert said(ctl).count("Interpreter: 3\n") == 200_000
        # an error in a later piece cuts the write short, and is what the rest of it gets
        written = os.write(fd, b"interpreter 5\n" * 200_000 + b"nonsense\ninterpreter 6\n")
        assert written < 200_000 * 14
        assert failure(os.write, fd, b"interpreter 6\n") == errno.EINVAL
        assert chosen(ctl) == 5
    finally:
        os.close(fd)


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


def test_after_the_end(probe, target, ctl):
    """Those who hold it open are told that the process has ended."""
    fds = [os.open(ctl, os.O_WRONLY), os.open(ctl, os.O_RDWR)]
    try:
        assert os.write(fds[1], b"interpreter 1\n")
        target.close()
        for fd in fds:
            assert failure(os.write, fd, b"interpreter 2\n") == errno.ESRCH
        assert os.read(fds[1], 1000) == b"Interpreter: 1\nerror: the process has ended\n"
        assert failure(os.open, ctl, os.O_WRONLY) == errno.ENOENT
    finally:
        for fd in fds:
            os.close(fd)


def test_second_user(probe, any_python, nobody):
    """Replies are for those who asked; nobody else's process can be told anything."""
    mount = probe.mount("allow_other")
    mine, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    path = mount.path / str(mine.pid) / "ctl"
    write(path, "interpreter 3\n")
    assert "Interpreter: 3\nInterpreter: 3\n" in path.read_text()
    # nobody sees the state, and not what root was answered
    shown = run_as(nobody, "cat", path).stdout
    assert shown.endswith("Interpreter: 3\n") and shown.count("Interpreter: 3") == 1
    result = run_as(nobody, "sh", "-c", f"echo 'interpreter 4' > {path} && cat {path}")
    assert result.stdout.endswith("Interpreter: 4\nInterpreter: 4\n"), result.stderr
    assert path.read_text().endswith("Interpreter: 4\nInterpreter: 3\n")

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


@contextlib.contextmanager
def writing(path, text=LONG, script='printf "%s" "$2" > "$1"', **options):
    """A shell whose write waits for what it wrote to be done."""
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", str(path), text], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
        **options)
    try:
        eventually(lambda: waits_in_write(process.pid), what="the write")
        yield process
    finally:
        process.kill()
        process.communicate(timeout=30)


def waits_in_write(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] == "1"
    except (OSError, IndexError):
        return False


def test_ctrl_c(code, target):
    """It ends the code, the write with EINTR, and nothing else, not the program at its end."""
    with writing(code) as process:
        target.expect("running")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in code.read_text()
    assert shell('echo 1 > "$1" && cat "$1"', code).stdout == "1\n"
    target.stdin.close()
    assert target.process.wait(10) == 0, target.stderr()


def test_signals_that_mean_nothing(code, target):
    """The end of a background job, or a window's new size, stops no code; Ctrl-C after it does."""
    script = "trap : CHLD WINCH; sleep 0.2 & " + 'printf "%s" "$2" > "$1"'
    with writing(code, script=script) as process:
        target.expect("running")
        for _ in range(3):
            process.send_signal(signal.SIGWINCH)
            time.sleep(0.1)
        assert waits_in_write(process.pid)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert "KeyboardInterrupt" in code.read_text()


def test_killed_writer(code, target):
    with writing(code) as process:
        target.expect("running")
        process.kill()
        process.communicate(timeout=20)
    eventually(lambda: "KeyboardInterrupt" in code.read_text(), what="the end of the code")
    assert shell('echo 1 > "$1" && cat "$1"', code).stdout == "1\n"


def test_killed_before_the_end_of_its_text(ctl):
    """What a killed writer left half done is not done."""
    write(ctl, "interpreter 1\n")
    result = shell('exec 3> "$1"; printf "interpreter 2" >&3; kill -9 $$', ctl)
    assert result.returncode == -signal.SIGKILL
    assert chosen(ctl) == 1


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
        second.communicate(timeout=20)


def test_many_writers(ctl):
    """64 at once, each with a handle of its own, each gets its own answers."""
    wrong = []

    def talk(number):
        fd = os.open(ctl, os.O_RDWR)
        try:
            for _ in range(20):
                os.write(fd, f"interpreter {number}\n".encode())
                if os.read(fd, 100) != f"Interpreter: {number}\n".encode():
                    wrong.append(number)
        finally:
            os.close(fd)

    threads = [threading.Thread(target=talk, args=[i]) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert chosen(ctl) in range(64)


def test_shared_handle(ctl):
    """Processes that write to one open file wait for each other."""
    result = shell('exec 3<> "$1"; for i in 1 2 3 4 5 6 7 8; do '
                   '(for j in 1 2 3 4 5; do echo "interpreter $i" >&3; done) & done; wait; '
                   'cat <&3 | sort | uniq -c', ctl)
    assert result.stderr == ""
    assert result.stdout.split() == [
        word for i in range(1, 9) for word in ("5", "Interpreter:", str(i))]


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
        assert mount.process.wait(20) == 0
        for writer in writers:
            assert "rror" in writer.communicate(timeout=20)[1]
    subprocess.run(["umount", "-l", mount.path], capture_output=True)
    probe.extra.remove(mount)
    mount.closed = True
    mount.path.rmdir()
    target.stdin.close()
    assert target.process.wait(10) == 0, target.stderr()


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
            print("refused", flush=True)
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


def test_close_of_one_of_two(ctl):
    """Two open files of one process look the same from outside: the first one's text ends when it
    is really gone, and nothing is lost."""
    first, second = os.open(ctl, os.O_WRONLY), os.open(ctl, os.O_WRONLY)
    try:
        os.write(first, b"interpreter 9")
        os.close(first)
        eventually(lambda: chosen(ctl) == 9, what="the end of the text")
    finally:
        os.close(second)


def test_descriptor_passed_on(ctl, any_python):
    """The same for one that somebody else has, who is no descendant."""
    here, there = socket.socketpair()
    script = """import array, socket, sys
here = socket.socket(fileno=int(sys.argv[1]))
_, extra, _, _ = here.recvmsg(1, 100)
fd = array.array("i", extra[0][2])[0]
here.send(b"x"); here.recv(1)
"""
    with here, there:
        keeper = subprocess.Popen(any_python.command("-c", script, there.fileno()),
                                  pass_fds=[there.fileno()])
        fd = os.open(ctl, os.O_WRONLY)
        here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        here.recv(1)
        os.write(fd, b"interpreter 9")
        os.close(fd)
        assert chosen(ctl) == 9  # as far as can be seen this was the last
        here.send(b"x")
        assert keeper.wait(20) == 0


def test_exit_with_code_that_does_not_end(code, target):
    """Nobody can interrupt a process that is exiting: what it left to do is ended for it."""
    begun = time.monotonic()
    result = shell('python3 -c "import os; os.write(1, b\'while True: pass\')" > "$1"', code)
    assert result.returncode == 0
    assert time.monotonic() - begun < 40
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
    assert target.process.wait(10) == 0


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
