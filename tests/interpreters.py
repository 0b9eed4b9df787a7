"""The interpreters of this machine, and the victims that run under them.

A victim is a script of tests/targets. It prints "ready" once it is what the test wants to look at,
and lives until its standard input ends or the test does. Victims run from a private copy of
tests/targets, which lies inside the root of an interpreter that has its own.
"""
import ast
import copy
import ctypes
import functools
import glob
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

import harm

OLDEST, NEWEST = (3, 8), (3, 15)
USUAL = (3, 9)  # what is older is for cases that ask for it: it lies in memory as this does, and takes no agent
DEADLINE = 30.0  # seconds until a victim must have said what it was asked
TARGETS = pathlib.Path(__file__).resolve().parent / "targets"
IMPORTED = ["oracle.py", "evaluator_server.py", "storm/workload.py"]
CACHE = pathlib.Path(os.environ.get("PROBEFS_TEST_CACHE", "/var/cache/probefs-tests"))
# A library of sid's PyTorch tells on stdout that a root has no /proc; and it is built without libuv, which it wants by
# default.
FOR_TORCH = {"UCX_LOG_LEVEL": "fatal", "USE_LIBUV": "0"}

running = []      # every Target not yet closed
crashed = []      # those that were closed, and had died by a signal of their own
gave_up = False   # whether the case's deadline has passed, and all of them were killed
unavailable = []  # why an interpreter that might have been here is not, in words

_directories = {}  # root -> private copy of tests/targets in it


def patience(seconds):
    """The time that so many seconds of an idle machine may take on this one as it is now: for deadlines, and for upper
    bounds of what nothing else can be compared with."""
    recent, *_, processes, _ = pathlib.Path("/proc/loadavg").read_text().split()
    running = int(processes.partition("/")[0])
    return seconds * max(1, max(float(recent), running) / len(os.sched_getaffinity(0)))


def eventually(condition, timeout=DEADLINE, what="condition"):
    """Polls until condition() is true and returns its value. Only a case that fails waits to the end, so that is
    far."""
    begun, timeout = time.monotonic(), max(timeout, DEADLINE)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() - begun > patience(timeout):  # of now: others may have begun meanwhile
            raise AssertionError(f"{what} did not come true within {timeout} s")
        time.sleep(0.005)


def written(file):
    """What it holds by now; who writes to it shares our place in it, which stays where it is."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def alone():
    """Whether this is a pid namespace of tests/alone, with none but the suite's own processes."""
    return os.environ.get("PROBEFS_TEST_ALONE") == os.readlink("/proc/self/ns/pid")


def _directory(root):
    """A private directory in root that holds a copy of the victims; everybody may read it."""
    if root not in _directories:
        parent = tempfile.gettempdir() if root == pathlib.Path("/") else root / "tmp"
        made = pathlib.Path(tempfile.mkdtemp(prefix="probefs-test-", dir=parent))
        shutil.copytree(TARGETS, made, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))
        made.chmod(0o755)
        _directories[root] = made
    return _directories[root]


def remove_directories():
    for made in _directories.values():
        shutil.rmtree(made, ignore_errors=True)
    _directories.clear()


def _allow_tracer():
    """Where Yama restricts ptrace to ancestors, a victim must invite the daemon, its sibling."""
    PR_SET_PTRACER, ANY = 0x59616D61, ctypes.c_ulong(-1)
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANY, 0, 0, 0)


def _yama():
    try:
        return int(pathlib.Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return 0


class Interpreter:
    def __init__(self, source, version, executable, root="/"):
        self.source = source              # "pyenv", "debian", "sid", "nogil" or "musl"
        self.version = version            # (3, 12, 1)
        self.executable = executable      # path inside its root
        self.root = pathlib.Path(root)
        self.proc = False                 # whether its programs have a /proc in a root of their own
        self.id = f"{source}-{'.'.join(map(str, version))}"

    def __repr__(self):
        return self.id

    @functools.cached_property
    def directory(self):
        """The private directory of the victims, as seen from outside the root; what most of them import is compiled."""
        made = _directory(self.root)
        shared = ["/" + str((made / name).relative_to(self.root)) for name in IMPORTED]
        subprocess.run(self.command("-c", "import py_compile, sys\nfor name in sys.argv[1:]: py_compile.compile(name)",
                                    *shared), stdin=subprocess.DEVNULL, check=True)
        return made

    def path(self, script):
        """A victim's path as the interpreter sees it, which is its co_filename."""
        return str("/" / (self.directory / script).relative_to(self.root))

    def command(self, *args, cwd=None):
        """cwd: where to run it, a directory as seen from outside; a change of root goes to its root else."""
        chroot = []
        if self.root != pathlib.Path("/"):
            inside = ["env", "-C", "/" + str(cwd.relative_to(self.root))] if cwd else []
            mount = ["unshare", "--mount", "sh", "-c", 'mount --bind /proc "$1/proc" && exec chroot "$@"', "sh"]
            chroot = [*(mount if self.proc else ["chroot"]), str(self.root), *inside]
        return [*chroot, self.executable, *map(str, args)]

    def run(self, script, *args, env=None, user=None, ready=True, within=()):
        """Starts a victim and waits for its "ready". user: a name; wants root. within: a command
        that starts it, such as unshare(1)."""
        env = dict(env or {})
        if self.version[:2] == (3, 10):  # whose daemon threads crash it (at_end/sitecustomize.py)
            env["PYTHONPATH"] = ":".join(filter(None, [env.get("PYTHONPATH"), self.path("at_end")]))
        return Target(self, script, args, env, user, ready, within)

    def run_source(self, source, *args, name="source.py", **options):
        """The same for a script given as text, whose name is no victim's: they share directories."""
        assert not (TARGETS / name).exists(), f"{name} is a script of tests/targets"
        written = self.directory / f"{name}.new"
        written.write_text(source, encoding="utf-8")
        written.replace(self.directory / name)  # a program that was started just before may only now read it
        return self.run(name, *args, **options)


class Target:
    def __init__(self, interpreter, script, args, env, user, ready, within=()):
        self.interpreter = interpreter
        self.script = script
        self._buffer = b""
        self._stderr = tempfile.TemporaryFile()
        options = {}
        if user is not None:
            import pwd
            entry = pwd.getpwnam(user)
            options = dict(user=entry.pw_uid, group=entry.pw_gid, extra_groups=[])
        elif os.geteuid() != 0 and _yama() == 1:
            options = dict(preexec_fn=_allow_tracer)
        self.cwd = pathlib.Path(tempfile.mkdtemp(prefix="cwd-", dir=interpreter.directory))
        self.cwd.chmod(0o777)  # its core file goes there
        self.process = subprocess.Popen(
            [*within, *interpreter.command("-u", self.path(script), *args, cwd=self.cwd)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, cwd=self.cwd,
            start_new_session=True,  # so that close() finds its children
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1",
                 "PYTHONDONTWRITEBYTECODE": "1",
                 **FOR_TORCH, **env}, **options)
        self.pid = self.process.pid
        harm.allow_core(self.pid)
        self.stdin = self.process.stdin
        running.append(self)
        if ready:
            try:
                self.expect("ready")
            except BaseException:
                self.close()
                raise

    def path(self, script=None):
        return self.interpreter.path(script or self.script)

    def path_seen(self, script):
        """The same as seen from outside its root."""
        return self.interpreter.directory / script

    def executable(self):
        """The same of its interpreter."""
        return self.interpreter.root / self.interpreter.executable.lstrip("/")

    def readline(self, timeout=DEADLINE):
        """The next line of its standard output, without the newline; "" at its end."""
        end = time.monotonic() + patience(timeout)
        fd = self.process.stdout.fileno()
        while b"\n" not in self._buffer:
            if not select.select([fd], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"{self.script} on {self.interpreter} said nothing for "
                                     f"{timeout} s; stderr: {self.stderr()!r}")
            got = os.read(fd, 1 << 20)
            if not got:
                line, self._buffer = self._buffer, b""
                return line.decode()
            self._buffer += got
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def expect(self, wanted, timeout=DEADLINE):
        got = self.readline(timeout)
        assert got == wanted, f"{self.script} on {self.interpreter} said {got!r}, not {wanted!r}" \
                              f"; stderr: {self.stderr()!r}"

    def send(self, line):
        self.stdin.write(line.encode() + b"\n")
        self.stdin.flush()

    def stderr(self):
        return written(self._stderr).decode(errors="replace")

    def stacks(self):
        """What sys._current_frames() says inside (victims that import oracle.py):
        {tid: {"name": str, "main": bool, "frames": [(function, file, line), ...]}}, innermost
        frame first, functions by co_qualname where there is one (3.11)."""
        self.send("stacks")
        return ast.literal_eval(self.readline())

    def traceback(self):
        """What faulthandler says on SIGUSR1 (victims that import oracle.py): works with the GIL
        held in C as well. {thread_id: [(file, line, function), ...]}, innermost first, at most
        100 frames."""
        before = len(self.stderr())

        def said():
            return self.stderr()[before:]

        # it writes piece by piece, and has ended when the same thread has begun to say the same again
        self._signal_main(signal.SIGUSR1)
        eventually(said, what="faulthandler's answer")
        self._signal_main(signal.SIGUSR1)
        head_of = re.compile(r"^(?:Current t|T)hread 0x([0-9a-f]+)", re.M)
        eventually(lambda: len(ids := head_of.findall(said())) > len(set(ids)), what="faulthandler's second answer")
        threads, frames = {}, None
        for line in said().splitlines():
            head = head_of.match(line)
            if head and int(head[1], 16) in threads:
                break
            frame = re.match(r'  File "(.*)", line (\d+|\?\?\?) in (.*)$', line)
            if head:
                frames = threads.setdefault(int(head[1], 16), [])
            elif frame and frames is not None:
                frames.append((frame[1], int(frame[2]) if frame[2].isdigit() else None, frame[3]))
        return threads

    def _signal_main(self, number):
        """To its main thread, which takes one after the other."""
        TGKILL = 234  # of x86-64
        assert ctypes.CDLL(None).syscall(TGKILL, self.pid, self.pid, int(number)) == 0

    def state(self, tid=None):
        """The letter of proc(5): R, S, D, T (stopped), t (traced), Z; "" once it is gone."""
        tid = tid or self.pid
        try:
            stat = pathlib.Path(f"/proc/{self.pid}/task/{tid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return ""
        return stat.rpartition(")")[2].split()[0]

    def tids(self):
        return sorted(map(int, os.listdir(f"/proc/{self.pid}/task")))

    def states(self):
        return {tid: self.state(tid) for tid in self.tids()}

    def signal(self, number):
        os.kill(self.pid, number)

    def close(self):
        """Kills it and its children, whatever state they are in."""
        if self not in running:
            return
        running.remove(self)
        self.looked_at = self.process.returncode is not None
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            self.process.wait(patience(DEADLINE))
        finally:
            for stream in (self.process.stdin, self.process.stdout):
                try:
                    stream.close()
                except BrokenPipeError:
                    pass
            if self.process.returncode in harm.CRASHES:
                crashed.append(self)
            else:
                self.forget()

    def forget(self):
        """Removes what is left of it."""
        self._stderr.close()
        shutil.rmtree(self.cwd, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def judge_crashed(failed):
    """Takes those that died by a signal as harmed, unless the case asked for their status and found it right."""
    while crashed:
        target = crashed.pop()
        if failed or not target.looked_at:
            harm.keep("crash", f"{target.script} on {target.interpreter} ended with {target.process.returncode}: "
                               f"{target.stderr()[-2000:]}", target)
        target.forget()


def _version(command):
    try:
        out = subprocess.run(
            [*command, "-c", "import sys; print(*sys.version_info[:3])"], capture_output=True,
            stdin=subprocess.DEVNULL, timeout=patience(60), check=True).stdout
        return tuple(map(int, out.split()))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def with_proc(interpreter):
    """The same for what needs a /proc, as each container has one: a root that is merely changed to has none."""
    made = copy.copy(interpreter)
    made.proc = True
    return made


@functools.lru_cache(maxsize=None)
def interpreters():
    """Every CPython of a supported version, oldest first; PROBEFS_TEST_INTERPRETERS, a regular
    expression over the ids, narrows the choice."""
    places = [("pyenv", path, "/") for path in
              glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3"))]
    places += [("debian", path, "/") for path in glob.glob("/usr/bin/python3.*")
               if re.fullmatch(r"python3\.\d+", os.path.basename(path))]
    sid = CACHE / "sid"
    if not sid.is_dir():
        unavailable.append(f"the interpreters of Debian sid: there is no {sid} (tests/run makes it)")
    elif os.geteuid() != 0:
        unavailable.append("the interpreters of Debian sid: chroot needs root")
    else:
        places += [("sid", "/" + str(path.relative_to(sid)), sid)
                   for path in sid.glob("usr/bin/python3.*")
                   if re.fullmatch(r"python3\.\d+", path.name)]

    found = []
    for source, executable, root in places:
        interpreter = Interpreter(source, (0, 0, 0), executable, root)
        version = _version(interpreter.command())
        if version and OLDEST <= version[:2] <= NEWEST:
            found.append(Interpreter(source, version, executable, root))
    found.sort(key=lambda i: (i.version, i.id))
    for minor in range(OLDEST[1], NEWEST[1] + 1):
        if not any(i.version[:2] == (3, minor) for i in found):
            unavailable.append(f"CPython 3.{minor}: no interpreter found")
    return _chosen(found)


def _chosen(found):
    chosen = re.compile(os.environ.get("PROBEFS_TEST_INTERPRETERS", ""))
    return tuple(i for i in found if chosen.search(i.id))


def built(kind, suffix=""):
    """Those that tests/built-root has built, the oldest first. suffix: what their names end with."""
    found = []
    for path in (CACHE / kind).glob(f"*/bin/python3.*[0-9]{suffix}"):
        version = _version([str(path)])
        if version:
            found.append(Interpreter(kind, version, str(path)))
    return sorted(found, key=lambda i: i.version)


@functools.lru_cache(maxsize=None)
def free_threaded():
    """Those without a GIL, of which what is read from outside is tried, and `eval`; narrowed by the same."""
    found = built("nogil", "t")
    for minor in range(13, NEWEST[1] + 1):
        if not any(i.version[:2] == (3, minor) for i in found):
            unavailable.append(f"CPython 3.{minor}, free-threaded: there is none in {CACHE}/nogil "
                               "(tests/built-root nogil)")
    return _chosen(found)
