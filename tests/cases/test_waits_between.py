"""Waits between processes: who is at the other end of what a thread waits for. The programs know it themselves: they
print the numbers of the processes in question, each after a word, before they wait."""
import os
import pathlib
import pty
import re
import shutil
import subprocess
import tempfile

import pytest

from interpreters import DEADLINE, eventually
from readers import run

HEAD = """
import fcntl, os, select, signal, socket, sys, threading, time

def child(run, *arguments):
    "Runs that in a child, which ends with its parent's group."
    pid = os.fork()
    if pid == 0:
        run(*arguments)
        os._exit(0)
    return pid

def ready(**numbers):
    print("ready")
    print(*(f"{name} {number}" for name, number in numbers.items()), flush=True)
"""


def start(python, source, *args, **options):
    """A victim, and the numbers that it said."""
    victim = python.run_source(HEAD + source, *args, **options)
    words = victim.readline().split()
    return victim, dict(zip(words[::2], map(int, words[1::2])))


def locks(probe, pid):
    return probe.read(pid, "locks").splitlines()


def told(probe, pid, pattern):
    """The line of its file that matches, once there is one."""
    def find():
        return next((line for line in locks(probe, pid) if re.search(pattern, line)), None)
    try:
        return eventually(find, DEADLINE, pattern)
    except AssertionError as error:
        raise AssertionError(f"{error}; {locks(probe, pid)}") from None


def rows(probe, pid, sql):
    return run("bash", "-c", 'exec 3<>"$1"; echo "$2" >&3; cat <&3', "bash", probe.path / str(pid) / "query", sql)


EACH_OTHER = """
mine, theirs = os.pipe(), os.pipe()

def other():
    os.close(mine[0]), os.close(theirs[1])
    os.read(theirs[0], 1)

pid = child(other)
os.close(mine[1]), os.close(theirs[0])
ready(other=pid)

def main():
    os.read(mine[0], 1)
main()
"""


def test_each_reads_the_others_pipe(probe, python):
    victim, its = start(python, EACH_OTHER)
    line = told(probe, victim.pid, "^deadlock: ")
    assert re.fullmatch(
        rf"deadlock: thread {victim.pid} \(.*\) reads a pipe \(source\.py:\d+\) whose other end is "
        rf"process {its['other']} \(.*\), which reads a pipe whose other end is process {victim.pid} \(.*\)", line)
    told(probe, victim.pid, rf"^thread {victim.pid} .* reads a pipe in main \(source\.py:\d+\).*, whose other end is "
                            rf"process {its['other']} \(")
    told(probe, its["other"], rf"^deadlock: thread {its['other']} .* whose other end is process {victim.pid} ")
    def row():
        said = rows(probe, victim.pid,
                    "SELECT kind, call, holder_pid, certain, deadlock FROM locks WHERE tid IS NOT NULL")
        return said.splitlines()[-1] == f"pipe,read,{its['other']},1,1"
    eventually(row, what="the row of the deadlock")


def test_one_that_can_go_on(probe, any_python):
    """A third process has the other end, too, and only sleeps."""
    victim, its = start(any_python, EACH_OTHER.replace("pid = child(other)", """
def sleeper():
    while True:
        time.sleep(1000)
third = child(sleeper)
pid = child(other)""").replace("ready(other=pid)", "ready(other=pid, third=third)"))
    told(probe, victim.pid, rf"^thread {victim.pid} (?=.*process {its['other']} \().*process {its['third']} \(")
    told(probe, its["third"], f"^thread {its['third']} .* sleeps in sleeper")
    told(probe, its["other"], f"process {its['third']} ")
    for pid in (victim.pid, *its.values()):
        assert not any("deadlock" in line for line in locks(probe, pid))


def test_its_own_end(probe, any_python):
    """The mistake behind many hangs: whoever reads has the end for writing open itself, and nobody else has."""
    victim, _ = start(any_python, """
ends = os.pipe()
child(time.sleep, 0)
ready()
os.read(ends[0], 1)
""")
    told(probe, victim.pid,
         rf"^thread {victim.pid} .* reads a pipe .*process {victim.pid} \(.*\), which is the same process$")


def test_writes(probe, any_python):
    victim, its = start(any_python, """
ends = os.pipe()
def hold():
    os.close(ends[1])
    signal.pause()
pid = child(hold)
os.close(ends[0])
ready(other=pid)
while True:
    os.write(ends[1], bytes(1 << 16))
""")
    told(probe, victim.pid, rf"writes to a pipe .*whose other end is process {its['other']} ")
    told(probe, its["other"], f"^thread {its['other']} .* waits for a signal")


SOCKETS = {
    "pair": "one, two = socket.socketpair()",
    "unix": """
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1] + "/it.sock")
listener.listen()
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1] + "/it.sock")
two, _ = listener.accept()
listener.close()
""",
    "tcp": """
listener = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(listener.getsockname())
two, _ = listener.accept()
listener.close()
""",
    "tcp of both kinds": """
listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
one = socket.create_connection(("127.0.0.1", listener.getsockname()[1]))
two, _ = listener.accept()
listener.close()
""",
}


@pytest.mark.parametrize("kind", SOCKETS)
def test_sockets(probe, any_python, kind):
    with tempfile.TemporaryDirectory() as directory:
        victim, its = start(any_python, SOCKETS[kind] + """
def other():
    one.close()
    two.recv(1)
pid = child(other)
two.close()
ready(other=pid)
one.recv(1)
""", directory)
        line = told(probe, victim.pid,
                    rf"^thread {victim.pid} .* reads a socket .*whose other end is process {its['other']} ")
        assert {"pair": "socket in", "unix": f"{directory}/it.sock in"}.get(kind, " 127.0.0.1:") in line
        told(probe, victim.pid, f"^deadlock: .*{its['other']}.*{victim.pid}")


def test_not_accepted(probe, any_python):
    victim, its = start(any_python, """
listener = socket.create_server(("127.0.0.1", 0))
def other():
    other = socket.create_server(("127.0.0.1", 0))
    print("other", os.getpid(), "port", other.getsockname()[1], flush=True)
    other.accept()
one = socket.create_connection(listener.getsockname())
print("ready")
child(other)
one.recv(1)
""")
    told(probe, victim.pid, "reads a socket 127.0.0.1:.*, which no process has accepted$")
    told(probe, its["other"], f"accepts at a socket 127.0.0.1:{its['port']} ")


LOCK = """
def take(path):
    file = open(path, "w")
    {"flock": fcntl.flock, "fcntl": fcntl.lockf}[sys.argv[2]](file, fcntl.LOCK_EX)
    return file
first, second, (reads, writes) = sys.argv[1] + "/first", sys.argv[1] + "/second", os.pipe()
"""


@pytest.mark.parametrize("kind", ["flock", "fcntl"])
def test_file_locks(probe, any_python, kind):
    with tempfile.TemporaryDirectory() as directory:
        victim, its = start(any_python, LOCK + """
def other():
    kept = take(first)
    os.write(writes, b"x")
    signal.pause()
pid = child(other)
os.read(reads, 1)
ready(other=pid)
take(first)
""", directory, kind)
        told(probe, victim.pid,
             rf"^thread {victim.pid} .* waits for file lock {directory}/first in take .*, held by process "
             rf"{its['other']} \(")
        assert not any("deadlock" in line for line in locks(probe, victim.pid))


@pytest.mark.parametrize("kind", ["flock"])  # the kernel itself refuses the other one: EDEADLK
def test_two_file_locks(probe, python, kind):
    """Two workers take them in opposite order."""
    with tempfile.TemporaryDirectory(dir=python.directory) as directory:
        inside = "/" + str(pathlib.Path(directory).relative_to(python.root))
        victim, its = start(python, LOCK + """
def work(a, b):
    kept = take(a)
    os.write(writes, b"x")
    while len(select.select([done], [], [])[0]) == 0:
        pass
    take(b)
done, go = os.pipe()
one, two = child(work, first, second), child(work, second, first)
os.read(reads, 1), os.read(reads, 1)
ready(one=one, two=two)
os.write(go, b"x")
os.waitpid(one, 0)
""", inside, kind)
        for pid, other in (its["one"], its["two"]), (its["two"], its["one"]):
            line = told(probe, pid, f"^deadlock: thread {pid} ")
            assert re.search(rf"waits for file lock \S*{inside}/\w+ .*held by process {other} .*, "
                             "which waits for file lock "
                             rf"\S*{inside}/\w+ held by process {pid} \(", line)
        told(probe, victim.pid, f"^deadlock: thread {victim.pid} .* waits for child {its['one']} ")


def test_children(probe, any_python):
    victim, its = start(any_python, """
def last():
    "Its first thread has ended, another one lives: a zombie that can't be waited for yet."
    import ctypes
    threading.Thread(target=signal.pause).start()
    ctypes.CDLL(None).syscall(60, 0)
lives, stopped, dead = child(signal.pause), child(signal.pause), child(last)
os.kill(stopped, signal.SIGSTOP)
def wait(pid):
    os.waitpid(pid, 0)
for pid in lives, stopped, dead:
    threading.Thread(target=wait, args=(pid,)).start()
ready(lives=lives, stopped=stopped, dead=dead)
os.waitpid(-1, 0)
""")
    for name, state in (("lives", "which lives"), ("stopped", "which is stopped by a signal"),
                        ("dead", r"which is dead \(zombie\)")):
        told(probe, victim.pid, rf"waits for child {its[name]} in wait .*, namely process {its[name]} \(.*\), {state}$")
    told(probe, victim.pid, rf"^thread {victim.pid} .* waits for child in .*, of which there is "
                            + "".join(rf"(?=.*process {pid} \()" for pid in its.values()))


def test_many_children(probe, any_python):
    """More than are told of: that is said; one that has died is told of all the same."""
    victim, its = start(any_python, """
for _ in range(40):
    child(signal.pause)
dead = child(lambda: None)
os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
ready(dead=dead)
os.waitid(os.P_ALL, 0, os.WSTOPPED)
""")
    def states():
        line = told(probe, victim.pid, rf"^thread {victim.pid} .* waits for child in .*, of which there is process")
        return line.count(", which lives") + line.count(", which is dead")
    eventually(lambda: states() >= 32, what="the states of them")
    assert states() <= 32
    told(probe, victim.pid, r"^\[cut: there are more waits, or holders, than are read\]$")
    told(probe, victim.pid, rf"^process {victim.pid} .* hasn't waited for child {its['dead']}, ")


def test_a_pool_with_a_dead_worker(probe, any_python):
    """As celery's: the parent reads what its workers say. The one that was to say it has died, and another one has its
    end of the pipe, too."""
    victim, its = start(any_python, """
results = os.pipe()
def work():
    signal.pause()
dead, lives = child(work), child(work)
os.close(results[1])
os.kill(dead, signal.SIGKILL)
os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
ready(dead=dead, lives=lives)
os.read(results[0], 1)
""")
    line = told(probe, victim.pid, rf"^thread {victim.pid} .* reads a pipe .*process {its['lives']} ")
    assert f"process {its['dead']} " not in line
    told(probe, victim.pid,
         rf"^process {victim.pid} \(.*\) hasn't waited for child {its['dead']}, namely process {its['dead']} \(.*\), "
         r"which is dead \(zombie\)$")


def test_polls(probe, any_python):
    """poll(), select() and epoll, with several descriptors; those that are told of are bounded."""
    victim, its = start(any_python, """
pipes = [os.pipe() for _ in range(20)]
def hold():
    for reads, _ in pipes:
        os.close(reads)
    signal.pause()
pid = child(hold)
for _, writes in pipes:
    os.close(writes)
def polls():
    poll = select.poll()
    for reads, _ in pipes[:2]:
        poll.register(reads, select.POLLIN)
    poll.poll()
def selects():
    select.select([pipes[2][0]], [], [])
def epolls():
    epoll = select.epoll()
    for reads, _ in pipes:
        epoll.register(reads, select.EPOLLIN)
    epoll.poll()
for run in polls, selects, epolls:
    threading.Thread(target=run).start()
ready(other=pid)
""")
    def told_of(function):
        return [line for line in locks(probe, victim.pid) if f" in {function} " in line]
    def all_told(function, n):
        found = told_of(function)
        ends = [line
                for line in found if f" polls a pipe in {function} " in line and f"is process {its['other']} (" in line]
        return found if len(found) == n and len(ends) == min(n, 8) else None
    for function, n in ("polls", 2), ("selects", 1), ("epolls", 9):
        found = eventually(lambda: all_told(function, n), DEADLINE, f"{n} of {function}")
    assert " polls descriptors (12 more) in epolls " in found[8]


@pytest.mark.parametrize("poll", ["epoll", "poll"])
def test_polls_the_end_that_writes(probe, any_python, poll):
    """One of two that wait for each other can go on once a third process reads a pipe that is full."""
    victim, its = start(any_python, """
full, mine, theirs = pipes = os.pipe(), os.pipe(), os.pipe()
def keep(*ends):
    for end in {end for pipe in pipes for end in pipe} - {*ends}:
        os.close(end)
def sleeper(end):
    keep(end)
    while True:
        time.sleep(1000)
def other(end, own):
    keep(end, own)
    os.read(end, 1)
os.set_blocking(full[1], False)
os.write(full[1], bytes(1 << 20))  # as much as there is room for
third, pid = child(sleeper, full[0]), child(other, theirs[0], mine[1])
keep(full[1], mine[0], theirs[1])
def main():
    polled = getattr(select, sys.argv[1])()
    polled.register(full[1], select.POLLIN | select.POLLOUT)
    polled.register(mine[0], select.POLLIN)
    polled.poll()
ready(other=pid, third=third)
main()
""", poll)
    told(probe, its["third"], f"^thread {its['third']} .* sleeps in sleeper")
    told(probe, its["other"], rf"reads a pipe .*process {victim.pid} ")
    for pid in its.values():
        told(probe, victim.pid, rf"polls a pipe in main .*, whose other end is process {pid} \([^,]*\)$")
    for pid in (victim.pid, *its.values()):
        assert not any("deadlock" in line for line in locks(probe, pid))


def test_selects_a_high_descriptor(probe, any_python):
    """C's select() takes sets of any size."""
    victim, its = start(any_python, """
import ctypes, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
reads, writes = os.pipe()
def hold():
    os.close(reads)
    signal.pause()
pid = child(hold)
os.close(writes)
high = fcntl.fcntl(reads, fcntl.F_DUPFD, 1500)
wanted = (ctypes.c_ulong * 32)()
wanted[high // 64] |= 1 << high % 64
ready(other=pid)
ctypes.CDLL(None).select(high + 1, ctypes.byref(wanted), None, None, None)
""")
    told(probe, victim.pid, rf"^thread {victim.pid} .* polls a pipe in .*, whose other end is process {its['other']} ")


def test_subprocess(probe, any_python):
    """Who waits for the output of a program."""
    victim, _ = start(any_python, """
import subprocess
ready()
subprocess.run(["sleep", "1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
""")
    told(probe, victim.pid, r" polls a pipe .*, whose other end is process \d+ \(sleep 1000\)$|"
                            r" reads a pipe .*, whose other end is process \d+ \(sleep 1000\)$")


def test_a_terminal(probe, any_python):
    ours, theirs = pty.openpty()
    try:
        name = os.ttyname(theirs)
        victim, _ = start(any_python, "ready(); os.read(os.open(sys.argv[1], os.O_RDONLY | os.O_NOCTTY), 1)", name)
        told(probe, victim.pid, f" reads a terminal {name} ")
    finally:
        os.close(ours), os.close(theirs)


def test_a_wait_that_ends_by_itself(probe, any_python):
    """Each reads the other's pipe; but one does so with a deadline."""
    victim, its = start(any_python, EACH_OTHER.replace("os.read(mine[0], 1)", "select.select([mine[0]], [], [], 1000)"))
    told(probe, victim.pid, rf"polls a pipe .*process {its['other']} ")
    told(probe, its["other"], rf"reads a pipe .*process {victim.pid} ")
    assert not any("deadlock" in line for pid in (victim.pid, its["other"]) for line in locks(probe, pid))


def test_names_are_escaped(probe, any_python):
    """A path of the program's choice forges no line."""
    with tempfile.TemporaryDirectory() as directory:
        victim, its = start(any_python, LOCK + """
name = sys.argv[1] + "/x\\ndeadlock: \\x1b[2J"
def other():
    kept = take(name)
    os.write(writes, b"x")
    signal.pause()
pid = child(other)
os.read(reads, 1)
ready(other=pid)
take(name)
""", directory, "flock")
        told(probe, victim.pid, rf"waits for file lock {directory}/x\\ndeadlock: \\x1b\[2J ")
        assert not any(line.startswith("deadlock") for line in locks(probe, victim.pid))


# ---- others ----

OTHERS = """
import pwd
entry = pwd.getpwnam(sys.argv[1])
mine, theirs, (reads, writes) = os.pipe(), os.pipe(), os.pipe()
path = sys.argv[2] + "/lock"
open(path, "w").close()
os.chmod(path, 0o666)
one, two = socket.socketpair()
def other():
    os.close(mine[0]), os.close(theirs[1]), one.close()
    kept = open(path)
    fcntl.flock(kept, fcntl.LOCK_EX)
    os.write(writes, b"x")
    os.read(theirs[0], 1)
pid = child(other)
os.read(reads, 1)
os.close(mine[1]), os.close(theirs[0]), two.close()
def user():
    os.setgroups([])
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    if os.fork():
        os.wait()
        os._exit(0)
    os.execv(sys.executable, [sys.executable, "-c", '''
import fcntl, os, sys, threading
pipe, one = int(sys.argv[1]), int(sys.argv[2])
threading.Thread(target=os.read, args=(one, 1)).start()
threading.Thread(target=lambda: fcntl.flock(open(sys.argv[3]), fcntl.LOCK_EX)).start()
print("ready")
print("root", os.environ["ROOT"], "user", os.getpid(), flush=True)
os.read(pipe, 1)
''', str(mine[0]), str(one.fileno()), path])
os.set_inheritable(mine[0], True)
os.set_inheritable(one.fileno(), True)
os.set_inheritable(theirs[1], True)
os.environ["ROOT"] = str(pid)
runs = child(user)
os.close(mine[0]), os.close(theirs[1]), one.close()
os.waitpid(runs, 0)
"""


def as_user(user, *command):
    return run("setpriv", f"--reuid={user}", f"--regid={subprocess.getoutput(f'id -g {user}')}", "--clear-groups",
               *command)


@pytest.mark.attack
def test_another_users_process(probe, any_python, nobody):
    """What can't be looked at isn't told of: neither its number, nor its command, nor that it is stuck."""
    shared = probe.mount("allow_other")
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        _, its = start(any_python, OTHERS, nobody, directory)
        told(shared, its["user"], rf"reads a pipe .*, whose other end is process {its['root']} ")
        told(shared, its["user"], rf"reads a socket .*, whose other end is process {its['root']} ")
        told(shared, its["user"], rf"waits for file lock {directory}/lock .*, held by process {its['root']} ")
        told(shared, its["user"], "^deadlock: ")
        hidden = "whose other end no process has that you may look at"
        def seen(file, *patterns):
            said = as_user(nobody, "cat", shared.path / file)
            # a line's number, or the digits of a time, may be the same
            assert not re.search(rf"(?<![.:\d]){its['root']}\b", said) and "deadlock:" not in said
            return all(re.search(pattern, said) for pattern in patterns)
        eventually(lambda: seen(f"{its['user']}/locks", f"reads a pipe .*, {hidden}\n",
                                f"reads a socket .*, {hidden}\n",
                                f"waits for file lock {directory}/lock .*, "
                                "held by a process that you may not look at\n"),
                   what="what each waits for")
        for file in f"{its['user']}/tables/locks.csv", "all/tables/locks.csv":
            eventually(lambda: seen(file, rf"\b{its['user']}\b"), what=file)


@pytest.mark.parametrize("wrapper", [
    ["unshare", "--pid", "--fork", "--mount-proc"],
    ["unshare", "--net"],
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--net", "--ipc"],
], ids=["pid", "net", "container"])
def test_other_namespaces(probe, any_python, wrapper):
    """All numbers are those of the reader's own; sockets are those of the program's."""
    if subprocess.run([*wrapper, "true"], capture_output=True).returncode:
        pytest.skip(f"no such namespace can be made here: {wrapper}")
    victim, its = start(any_python, """
one, two = socket.socketpair()
def other():
    one.close()
    threading.Thread(target=two.recv, args=(1,)).start()
    signal.pause()
pid = child(other)
two.close()
threading.Thread(target=one.recv, args=(1,)).start()
ready(inner=pid)
os.waitpid(pid, 0)
""", within=wrapper)
    def parent():
        found = subprocess.run(["pgrep", "-s", str(victim.pid), "-f", "source.py"], capture_output=True,
                               text=True).stdout.split()
        for pid in map(int, found):
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            if len(children) == 1 and b"-u\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() \
                    and pathlib.Path(f"/proc/{pid}/comm").read_text() != "unshare\n":
                return pid, int(children[0])
        return None
    pid, other = eventually(parent, DEADLINE, "the two of them")
    told(probe, pid,
         rf"^thread {pid} .* waits for child {its['inner']} .*, namely process {other} \(.*\), which lives$")
    told(probe, pid, rf"reads a socket .*, whose other end is process {other} \(")


# ---- multiprocessing ----


OPPOSITE = """
import multiprocessing, sys

def work(number, first, second, said, go):
    with first if number % 2 else second:
        said.send(number)
        go.wait()
        with second if number % 2 else first:
            pass

def main():
    context = multiprocessing.get_context(sys.argv[1])
    first, second, go = context.Lock(), context.Lock(), context.Event()
    hears, said = context.Pipe()
    workers = [context.Process(target=work, args=(n, first, second, said, go)) for n in range(4)]
    for worker in workers:
        worker.start()
    got = {hears.recv() % 2, hears.recv() % 2}
    assert got == {0, 1}
    print("ready")
    print(*(f"w{n} {worker.pid}" for n, worker in enumerate(workers)), flush=True)
    go.set()
    workers[0].join()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_two_locks_of_four_workers(probe, python, method):
    """As gunicorn's: two of the workers have a lock each and wait for the other one's, two more wait with them."""
    victim = python.run_source(OPPOSITE, method, name=f"opposite_{method}.py")
    words = victim.readline().split()
    workers = list(map(int, words[1::2]))
    def deadlocked():
        found = {}
        for pid in workers:
            for line in locks(probe, pid):
                # its name is known once threading is imported
                if line.startswith(f"deadlock: thread {pid} (MainThread) "):
                    found[pid] = line
        return found if len(found) == 4 else None
    try:
        found = eventually(deadlocked, DEADLINE, "the deadlock of four")
    except AssertionError as error:
        raise AssertionError(f"{error}; {[locks(probe, pid) for pid in workers]}") from None
    holders = set()
    for pid, line in found.items():
        seen = re.fullmatch(
            rf"deadlock: thread {pid} \(MainThread\) waits for multiprocessing\.Lock (first|second) "
            rf"\(opposite_\w+\.py:[58]\) "
            r"held by process (\d+) \(.*?\), which waits for multiprocessing\.Lock held by process (\d+) \(.*?\)"
            r"(, which waits for multiprocessing\.Lock held by process (\d+) \(.*?\))?", line)
        assert seen, line
        holder = int(seen[2])
        holders.add(holder)
        assert holder in workers and holder != pid
        assert ".py:8)" not in line or workers.index(holder) % 2 != workers.index(pid) % 2
        told(probe, pid, rf"^thread {pid} .*, held by process {holder} \(.*\) \(opposite_\w+\.py:5\)$")
    assert len(holders) == 2
    told(probe, victim.pid, rf"^thread {victim.pid} .* waits for child {workers[0]} ")


QUEUE = """
import multiprocessing, os, sys, time

def work(queue, said):
    said.send(os.getpid())
    queue.get()

def main():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    hears, said = context.Pipe()
    workers = [context.Process(target=work, args=(queue, said), daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    print("ready")
    print(*(f"w{n} {worker.pid}" for n, worker in enumerate(workers)), flush=True)
    for worker in workers:
        worker.join()

if __name__ == "__main__":
    main()
"""


def test_workers_at_a_queue(probe, python):
    """One of them reads its pipe, the others wait for the lock of those that read."""
    victim = python.run_source(QUEUE, name="at_a_queue.py")
    workers = list(map(int, victim.readline().split()[1::2]))
    def readers():
        return [pid for pid in workers
                if any(re.search(f"^thread {pid} .* reads a pipe in ", line) for line in locks(probe, pid))]
    reader, = eventually(readers, DEADLINE, "one that reads")
    for pid in workers:
        if pid != reader:
            told(probe, pid,
                 rf"^thread {pid} \(MainThread\) waits for multiprocessing\.Queue queue .*, held by process {reader} ")
    told(probe, reader, rf"^thread {reader} .* reads a pipe in work \(at_a_queue\.py:6\).*, whose other end is process")
