"""Writing: how shells and programs write to command files, and what they are told.

Verbs of ctl stand in where it doesn't matter what runs; test_commands_run.py has code that does run.
"""
import array
import errno
import os
import select
import signal
import socket
import subprocess
import threading

import pytest

from command_files import chosen, ctl, said, target  # noqa: F401, fixtures among them
from commands import failure, shell, write
from interpreters import eventually, patience

ERROR = "error: unknown verb; there are attach [remote-exec], detach, status, interpreter N, " \
        "[here] on-crash off|record|stop [for TIME], [here] pause [for TIME], continue, " \
        "heap mark NAME|drop NAME|sites on [BYTES]|sites off, " \
        "profile [MODE...] [97hz] [for TIME] [native] [children] [inside] [tid N]|off|clear|mark NAME|" \
        "torch [steps=N|off], " \
        "record [TABLE [on|off] [SIZE] [rate=R|LIMIT] [layers=L] [locals]]\n"


@pytest.mark.parametrize("program", ["bash", "dash"])
def test_a_bad_word(ctl, program):
    """The shell says it, exits 1, and the next read says why."""
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


def test_killed_before_the_end_of_its_text(ctl):
    """What a killed writer left half done is not done."""
    write(ctl, "interpreter 1\n")
    result = shell('exec 3> "$1"; printf "interpreter 2" >&3; kill -9 $$', ctl)
    assert result.returncode == -signal.SIGKILL
    assert chosen(ctl) == 1


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
        thread.join(patience(60))
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
        assert keeper.wait(patience(30)) == 0
