"""cores/<name>/: core files, against the same process read just before it was dumped."""
import contextlib
import errno
import gzip
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess

import pytest

from cores import dumped, gcore, root_of, show
from interpreters import OLDEST, eventually, patience
from mount import build
from puppet import Puppet
from sql import ask, rows, settle
from stacks import STANDS
from test_contain import connections, readers, reply
from test_other_user import run_as

CRASH = """
import ctypes, os, signal, threading, time

def die(how):
    words = ["it", how]
    if how == "segv":
        ctypes.string_at(16)
    elif how == "call":
        ctypes.CFUNCTYPE(None)(0)()
    elif how == "kill":
        signal.pthread_kill(threading.get_ident(), signal.SIGBUS)
    os.abort()

def idle():
    ready.release()
    time.sleep(1000)

ready = threading.Semaphore(0)
threading.Thread(target=idle, name="idler", daemon=True).start()
ready.acquire()
print("ready", flush=True)
how, where = input().split()
if where == "thread":
    threading.Thread(target=die, args=(how,), name="dies").start()
    time.sleep(1000)
die(how)
"""


def without_times(text):
    """For how long threads and tasks stood is known of the living only."""
    return re.sub(rf", {STANDS.pattern}(?=\])", "", text)


def body(text):
    """Of a backtrace: what stands behind its head, without what only a living process has."""
    return without_times(text).partition("\n\n")[2]


def status(top):
    return dict(line.split(": ", 1) for line in (top / "status").read_text().splitlines())


def table(top, name):
    return rows((top / "tables" / f"{name}.csv").read_text())


class Seen:
    """What the files of a directory say that a core file has too."""

    def __init__(self, top, version):
        files = ["backtrace", "stacks.folded", "stacks.python.folded", "globals/__main__"]
        files += [str(path.relative_to(top)) for name in ("locals", "source") for path in (top / "threads").rglob(name)]
        files += [str(path.relative_to(top)) for path in (top / "sources").iterdir() if path.name.endswith("!os.py")]
        if version >= (3, 12):
            files.append("tasks")
        self.texts = {file: without_times((top / file).read_text()) for file in files}
        self.census = [line for line in (top / "heap/census").read_text().splitlines() if line[0] != "#"]
        self.tables = {name: table(top, name) for name in ("locals", "modules", "backtrace", "environ")}
        self.threads = {row["tid"]: (row["thread"], row["state"], row["wchan"], row["depth"], row["interpreter"])
                        for row in table(top, "threads")}
        self.libraries = {row["path"] for row in table(top, "maps") if ".so" in row["path"]}
        self.status = {key: value for key, value in status(top).items()
                       if key
                       in ("Cmdline", "Pid", "PPid", "Python", "Threads", "GilHolder", "PythonThreads", "Interpreters")}


def seen_twice(top, version):
    """Seen, once that doesn't change any more."""
    before, now = Seen(top, version), Seen(top, version)
    return now if now.texts == before.texts else None


def threads_of(text):
    """{thread: its lines} of a backtrace, without the words in brackets."""
    return dict(re.fullmatch(r"Thread (\d+ \([^\n]*?\)) \[[^\n]*\](\n.*)", part, re.S).groups()
                for part in body(text).rstrip("\n").split("\n\n"))


@pytest.mark.long
def test_as_it_lived(probe, python, tmp_path):
    target = python.run("fixed.py")
    settle(target)
    before = eventually(lambda: seen_twice(probe.path / str(target.pid), python.version), what="that it stands still")

    path, lost = gcore(target, tmp_path)
    if not lost:
        mounted, top = show(probe, f"core={path}")
        now = Seen(top, python.version)
        assert body(now.texts["backtrace"]) == body(before.texts["backtrace"])
        del now.texts["backtrace"]
        assert now.texts == {name: before.texts[name] for name in now.texts}
        assert (now.tables, now.threads, now.status) == (before.tables, before.threads, before.status)
        assert now.census == before.census
        assert before.libraries <= now.libraries
        said = status(top)
        assert said["Signal"] == "none, it was dumped alive" and "Truncated" not in said and "Missing" not in said

    settle(target)  # a thread that is only just let go by gdb may leave the signal to another one
    target.signal(signal.SIGXCPU)
    mounted, top = show(probe, f"core={dumped(target)}", *root_of(target))
    now = Seen(top, python.version)
    assert threads_of(now.texts["backtrace"]) == threads_of(before.texts["backtrace"])
    del now.texts["backtrace"]
    assert now.texts == {name: before.texts[name] for name in now.texts}
    assert (now.tables, now.status, now.census) == (before.tables, before.status, before.census)
    before.threads[str(target.pid)] = ("MainThread", "faulted", "SIGXCPU", *before.threads[str(target.pid)][3:])
    assert now.threads == before.threads


@pytest.mark.harms
@pytest.mark.parametrize("how, where, died", [("segv", "thread", "SIGSEGV at 0x10 (nothing is mapped there)"),
                                                ("call", "main", "SIGSEGV at 0x0 (nothing is mapped there)"),
                                                ("abort", "main", "SIGABRT"), ("kill", "thread", "SIGBUS")])
def test_died(probe, any_python, how, where, died):
    look_at_dead(probe, any_python, how, where, died)


@pytest.mark.long
@pytest.mark.harms
@pytest.mark.python(minimum=OLDEST)
def test_died_under_every_version(probe, python):
    look_at_dead(probe, python, "segv", "thread", "SIGSEGV at 0x10 (nothing is mapped there)")


def look_at_dead(probe, python, how, where, died):
    target = python.run_source(CRASH, name="crash_of_cores.py")
    resource.prlimit(target.pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    target.send(f"{how} {where}")
    path = dumped(target)
    mounted, top = show(probe, f"core={path}", *root_of(target))
    name = "dies" if where == "thread" else "MainThread"
    said = status(top)
    assert said["Signal"] == died and said["Pid"] == str(target.pid)
    text = (top / "backtrace").read_text()
    assert f"\nDied of {died} in thread {said['Faulted']}\n" in text
    first = body(text).partition("\n\n")[0]
    assert first.startswith(f"Thread {said['Faulted']} ({name}) [{died}"), first
    frames = re.findall(r"^  #\d+  (\w+) \((.*):(\d+)\)$", first, re.M)
    line = {"segv": "ctypes.string_at(16)", "call": "CFUNCTYPE", "abort": "os.abort()",
            "kill": "signal.pthread_kill"}[how]
    number = 1 + next(n for n, text in enumerate(CRASH.splitlines()) if line in text)
    assert ("die", target.path("crash_of_cores.py"), str(number)) in frames
    native = re.findall(r"^  #\d+  (\S+) \(.*\) \[native\]$", first, re.M)
    assert native and "native frames" not in first
    assert f"Thread {target.pid} (MainThread) [" in text and " (idler) [" in text
    (row,) = ask(top / "query", "SELECT value FROM locals WHERE name = 'words'")
    assert row["value"] == f"['it', '{how}']"
    assert [row["value"] for row in ask(top / "query", "SELECT v.value FROM locals l, value(l.tid, l.depth, 'words') v "
                                                       "WHERE l.name = 'words'")] == ["'it'", f"'{how}'"]
    (row,) = ask(mounted.path / "all" / "query",
                 f"SELECT thread FROM threads WHERE pid = {target.pid} AND state = 'faulted'")
    assert row["thread"] == name


def test_from_a_container(probe, any_python):
    """In a pid namespace of its own a process has other numbers, and those are in what the kernel dumps of it."""
    within = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", '"$@"; exit $?', "sh"]  # pid 1 takes no signal
    if subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("no pid namespace can be made here")
    target = any_python.run("fixed.py", within=within)
    pid = target.pid
    for _ in range(2):
        (pid,) = map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())

    def threads(text):
        return {who.partition(" ")[2]: lines for who, lines in threads_of(text).items()}

    before = eventually(lambda: text if (text := probe.read(pid, "backtrace")).count(") [idle, ") == 4 else None,
                        what="all of it to wait")
    inner = pathlib.Path(f"/proc/{pid}/status").read_text().partition("\nNSpid:\t")[2].split()[1]
    resource.prlimit(pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.kill(pid, signal.SIGXCPU)
    mounted, top = show(probe, f"core={dumped(target, 128 + signal.SIGXCPU)}")
    assert status(top)["Pid"] == inner and int(inner) != pid
    now = (top / "backtrace").read_text()
    assert threads(now) == threads(before) and len(threads(now)) == 4
    assert f"\nThread {inner} (MainThread) [SIGXCPU]\n" in now and inner in os.listdir(top / "threads")


# ---- what can be wrong ----

def refused(tmp_path, *options):
    """What a mount with these says that doesn't come about."""
    directory = tmp_path / "mountpoint"
    directory.mkdir(exist_ok=True)
    arguments = [word for option in options for word in ("-o", option)]
    said = subprocess.run([build() / "fs" / "probefs", *arguments, directory], capture_output=True, text=True,
                          timeout=patience(30))
    assert said.returncode == 1 and not os.path.ismount(directory), said.stderr
    assert said.stderr.startswith("probefs: ") and said.stderr.count("\n") == 1
    return said.stderr[len("probefs: "):-1]


@pytest.fixture
def core(any_python):
    """Of a program that the kernel dumped."""
    target = any_python.run("fixed.py")
    settle(target)
    target.signal(signal.SIGXCPU)
    return dumped(target)


def test_no_core_files(probe, tmp_path):
    (tmp_path / "text").write_text("no core file")
    assert refused(tmp_path, f"core={tmp_path}/text") == \
        f"core file {tmp_path}/text: it is no core file; name the file that the kernel, gcore or coredumpctl wrote"
    assert refused(tmp_path, f"core={tmp_path}/none") == f"core file {tmp_path}/none: No such file or directory"
    assert refused(tmp_path, f"core={tmp_path}") == f"core file {tmp_path}: not a regular file"
    sleeps = subprocess.Popen(["sleep", "1000"])
    try:
        path, _ = gcore(sleeps, tmp_path)
    finally:
        sleeps.kill()
        sleeps.wait()
    assert refused(tmp_path, f"core={path}") == f"core file {path}: no CPython is found in it"


def test_files_elsewhere(probe, core, tmp_path):
    """Where the files that were mapped aren't, or others are."""
    assert refused(tmp_path, f"core={core}",
                   f"sysroot={tmp_path}/none") == f"sysroot {tmp_path}/none: No such file or directory"
    (tmp_path / "root").mkdir()
    words = refused(tmp_path, f"core={core}", f"sysroot={tmp_path}/root")
    assert "no CPython is found in it; files that it had mapped can't be read: " in words
    assert "(No such file or directory)" in words and "core=FILE:EXECUTABLE" in words and "sysroot=DIRECTORY" in words
    _, top = show(probe, f"core={core}", "sysroot=/")
    text = (top / "backtrace").read_text()
    executable = status(top)["Executable"]
    assert f"{executable} (another build than the one that ran)" in refused(tmp_path, f"core={core}:/bin/sh")
    moved = tmp_path / "moved"
    shutil.copy(executable, moved)
    _, top = show(probe, f"core={core}:{moved}")
    assert (top / "backtrace").read_text() == text


def test_cut(probe, core, tmp_path):
    """What is left of a core file is shown, or it is said that it was cut."""
    whole, shown = core.read_bytes(), 0
    for tenths in 1, 5, 8, 9:
        path = tmp_path / f"cut-{tenths}"
        path.write_bytes(whole[:len(whole) * tenths // 10])
        arguments = ["-o", f"core={path}"]
        directory = tmp_path / f"mountpoint-{tenths}"
        directory.mkdir()
        said = subprocess.run([build() / "fs" / "probefs", *arguments, directory], capture_output=True, text=True,
                              timeout=patience(30))
        if said.returncode:
            assert "it was cut: " in said.stderr
            continue
        try:
            top = directory / "cores" / path.name
            assert "Truncated" in status(top)
            (top / "backtrace").read_text()
            shown += 1
        finally:
            subprocess.run(["fusermount3", "-u", directory], check=True)


@pytest.mark.parametrize("packer", ["zstd", "gzip", "xz", "lz4"])
def test_packed(probe, core, tmp_path, packer):
    path = tmp_path / "core.packed"
    with open(path, "wb") as file:
        fast = {"xz": ["-0"]}.get(packer, [])
        subprocess.run([shutil.which(packer) or pytest.skip(f"there is no {packer}"), "-c", *fast, core], stdout=file,
                       check=True)
    _, top = show(probe, f"core={core}")
    try:
        _, packed = show(probe, f"core={path}")
    except AssertionError as error:
        if "built without libarchive" in str(error):
            pytest.skip("this probefs was built without libarchive")
        raise
    for file in "backtrace", "stacks.folded", "globals/__main__":
        assert (packed / file).read_text() == (top / file).read_text()
    assert status(packed)["Size"] == status(top)["Size"]
    path.write_bytes(path.read_bytes()[:20] + bytes(1000))
    assert f"it is packed by {packer}, and damaged" in refused(tmp_path, f"core={path}")


def test_several(probe, core, tmp_path):
    """Each under its name, and a comma or colon in it."""
    (tmp_path / "other").mkdir()
    odd = tmp_path / "a:b,c"
    for path in tmp_path / core.name, tmp_path / "other" / core.name, odd:
        os.link(core, path) if os.stat(core).st_dev == os.stat(tmp_path).st_dev else shutil.copy(core, path)
    mounted = probe.mount(f"core={tmp_path / core.name}", f"core={tmp_path / 'other' / core.name}",
                          "core=" + str(odd).replace(",", "\\,"))
    names = os.listdir(mounted.path / "cores")
    assert names == [core.name, f"{core.name}.2", "a:b,c"]
    said = {name: (mounted.path / "cores" / name / "backtrace").read_text() for name in names}
    assert len(set(said.values())) == 1
    tables = [path.stem for path in (mounted.path / "cores" / core.name / "tables").iterdir()]
    for name in tables:
        assert (mounted.path / "cores" / core.name / "tables" / f"{name}.csv").read_text().count("\n") > 0
        ask(mounted.path / "all" / "query", f"SELECT * FROM {name} LIMIT 1")
    (row,) = ask(mounted.path / "all" / "query", "SELECT count(*) AS n FROM process WHERE state IS NULL")
    assert row["n"] == "3"
    assert not (probe.path / "cores").exists() and "cores" not in os.listdir(probe.path)


@pytest.mark.attack
def test_of_another_user(probe, any_python, nobody, tmp_path):
    """Only the core file's owner may look; and it shows nothing that its owner may not read."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    program = private / "python"
    shutil.copy(os.path.realpath(any_python.executable), program)
    sleeps = subprocess.Popen([program, "-c", "import sys; print('ready', flush=True); sys.stdin.read()"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert sleeps.stdout.readline() == b"ready\n"
        path, _ = gcore(sleeps, tmp_path)
    finally:
        sleeps.kill()
        sleeps.communicate()
    mounted, top = show(probe, f"core={path}", "allow_other")
    assert "<module> (<string>:1)" in (top / "backtrace").read_text()
    assert run_as(nobody, "cat", top / "status").returncode and not run_as(nobody, "ls", top.parent).stdout
    mounted.close()

    shutil.chown(path, nobody)
    mounted, top = show(probe, f"core={path}")
    assert f"{program} (Permission denied)" in status(top)["Missing"]
    assert status(top)["Supported"].startswith("no, which version it is can't be read")
    assert "native frames only" in (top / "backtrace").read_text()
    mounted.close()
    private.chmod(0o755)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.name.startswith("pytest"):
            parent.chmod(0o755)
    mounted, top = show(probe, f"core={path}", "allow_other")
    assert "<module> (<string>:1)" in run_as(nobody, "cat", top / "backtrace").stdout
    assert os.stat(top).st_uid == os.stat(path).st_uid


# ---- who reads it (-o contain) ----

@pytest.fixture
def contained(probe):
    """Mounts with core files that are read by processes of their own."""
    if os.geteuid():
        pytest.skip("only root can take on the rights of others")
    return lambda *cores: probe.mount("allow_other", "contain=yes", *(f"core={path}" for path in cores))


def reader_of(mounted, path):
    """The process that reads a core file."""
    for pid, _ in readers(mounted):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if str(path) in map(os.readlink, pathlib.Path(f"/proc/{pid}/fd").iterdir()):
                return pid
    raise AssertionError(f"nobody reads {path}")


def copied(core, any_python, to):
    """The core file, and the program that it is of: other files than any process has."""
    program = to / "program"
    shutil.copy(os.path.realpath(any_python.executable), program)
    return shutil.copy(core, to / "core.copy"), program


@pytest.mark.attack
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_daemon_reads_nothing(probe, core, any_python, tmp_path, packed):
    """The mount's process opens the core file and the program, and has another process read them."""
    if os.geteuid() or not shutil.which("strace"):
        pytest.skip("it takes root and strace")
    path, program = copied(core, any_python, tmp_path)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes(), 1))
    log = tmp_path / "log"
    mounted = None
    within = ["env", f"TMPDIR={tmp_path}", "strace", "-f", "-y", "-b", "execve", "-o", log]
    try:
        mounted = probe.mount("allow_other", "contain=yes", f"core={path}:{program}", within=within)
    except AssertionError as error:
        if "built without libarchive" in str(error):
            pytest.skip("this probefs was built without libarchive")
        raise
    top = mounted.path / "cores" / path.name
    for file in "status", "backtrace", "heap/census", "locks", "tables/locals.csv", "globals/__main__":
        assert (top / file).read_text()
    assert ask(top / "query", "SELECT name FROM locals") and os.listdir(top / "threads")
    assert ask(mounted.path / "all" / "query", "SELECT name FROM locals WHERE pid = " + status(top)["Pid"])
    mounted.close()
    calls = {match[1] for line in log.read_text().splitlines()
             if f"<{tmp_path}/" in line and (match := re.match(r"\d+ +(?:<\.\.\. )?(\w+)", line))}
    assert {"openat", "sendmsg"} <= calls
    assert calls <= {"openat", "openat2", "fstat", "newfstatat", "close", "sendmsg", "fcntl", "execve"}, calls


@pytest.mark.attack
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("how", [signal.SIGABRT, signal.SIGKILL, signal.SIGSTOP], ids=lambda s: s.name)
def test_reader_killed(contained, core, any_python, tmp_path, how, packed):
    """What reads one core file crashes or is stopped: it is read again, by another one that is given the same files,
    and the other core file is read meanwhile."""
    other = core
    path, program = copied(core, any_python, tmp_path)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes(), 1))
    mounted = contained(other, f"{path}:{program}")
    texts = {file: (mounted.path / "cores" / other.name / file).read_text() for file in ("backtrace", "status")}

    def read(name):
        try:
            return mounted.read("cores", name, "backtrace")
        except OSError as error:
            return error.errno

    def its_reader():
        found = {pid for pid, _ in readers(mounted)} - {reader_of(mounted, other)}
        return found.pop() if len(found) == 1 else None

    text = read(path.name)
    assert text == texts["backtrace"]
    path.unlink()
    program.unlink()
    for _ in range(2):
        pid = eventually(its_reader, 10, "the end of the one before")
        os.kill(pid, how)
        if how == signal.SIGSTOP:
            eventually(lambda: "\nState:\tT" in pathlib.Path(f"/proc/{pid}/status").read_text(), 10, "its stop")
        else:
            eventually(lambda: pid not in dict(readers(mounted)), 10, "its end")
        assert read(other.name) == text
        assert read(path.name) in ((errno.ETIMEDOUT,) if how == signal.SIGSTOP else (text, errno.EIO))
        eventually(lambda: read(path.name) == text, 30, "another one that reads it")
    said = mounted.read("cores", path.name, "errors")
    assert how != signal.SIGSTOP or "what reads this core file was stopped, or did not answer" in said
    assert mounted.read("cores", other.name, "status") == texts["status"]


@pytest.mark.attack
def test_reader_has_no_rights(contained, core):
    mounted = contained(core)
    pid = reader_of(mounted, core)
    said = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    assert said["Uid"].split()[0] not in ("0", str(os.stat(core).st_uid)) and said["Seccomp"] == "2"
    assert {int(said[key], 16) for key in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {0}
    assert os.listdir(f"/proc/{pid}/root") == ["proc"]


@pytest.mark.attack
@pytest.mark.parametrize("said, read, words", [
    (reply(text=b"it\x1b[2J\xc2\x9b\r\n"), "it?[2J???\n", None),
    (reply(-errno.EPERM), errno.EPERM, None),
    (reply(4242), errno.EIO, "what reads this core file has crashed"),
    (reply(size=1 << 40), errno.EIO, "what reads this core file has crashed"),
    (b"x", errno.EIO, "what reads this core file has crashed"),
], ids=["controls", "refused", "no error", "size", "garbage"])
def test_reader_lies(contained, core, said, read, words):
    """One that the core file has taken over says what it likes: nobody else is asked, and no terminal gets it."""
    mounted = contained(core)
    top = mounted.path / "cores" / core.name
    assert (top / "status").read_text()
    with Puppet(reader_of(mounted, core)) as puppet:
        assert connections(puppet.pid)
        for fd in connections(puppet.pid):
            assert puppet.call("sendto", fd, said, len(said), 0, 0, 0) == len(said)
    try:
        assert mounted.read("cores", core.name, "status") == read
    except OSError as error:
        assert error.errno == read
    if words:
        assert words in (top / "errors").read_text()
        eventually(lambda: (top / "status").read_text(), 30, "another one that reads it")
