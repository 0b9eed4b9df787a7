"""The tools that probefs is measured against: each takes a target and gives its command, or None and says
why."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

import interpreters as machine
from report import skip, timed


class Sampling:
    """CPython 3.15's own; runs in the same root as the target, which must see /proc."""
    name = "profiling.sampling dump"

    def command(self, target):
        if target.interpreter.version[:2] != (3, 15):
            return None  # reads its own version only
        # -a: all threads, as the others show them
        return target.interpreter.command("-m", "profiling.sampling", "dump", "-a", target.pid)


class PyPI:
    """A tool from PyPI, in a private environment that is kept between runs."""

    def __init__(self, package, program, *arguments):
        self.name = " ".join([program, *arguments[:1]])
        self.package, self.arguments = package, arguments
        self.environment = machine.CACHE / "peers"
        self.program = self.environment / "bin" / program

    def install(self):
        if not self.program.exists():
            if not (self.environment / "bin" / "python3").exists():
                took, said = timed([sys.executable, "-m", "venv", str(self.environment)])
                if took is None:
                    return f"no virtual environment: {said.strip().splitlines()[-1]}"
            took, said = timed([str(self.environment / "bin" / "pip"), "install", "-q",
                                "--disable-pip-version-check", self.package], timeout=300)
            if took is None:
                return f"pip failed: {said.strip().splitlines()[-1]}"
        return None

    def command(self, target):
        return [str(self.program), *self.arguments, str(target.pid)]


class Library(PyPI):
    """Programs find it in `directory`; `python` can import it."""

    def __init__(self, name, package, module):
        super().__init__(package, "python3")
        self.name, self.python = name, self.program
        self.directory = self.environment / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"
        self.program = self.directory / module


class OpenTelemetry(Library):
    def __init__(self):
        super().__init__("OpenTelemetry", "opentelemetry-sdk", "opentelemetry/sdk")


class Debugpy:
    """Debian's where the interpreter has it, else PyPI's for its version, which is kept between runs."""

    def __init__(self, interpreter):
        self.interpreter = interpreter
        self.directory = machine.CACHE / "debugpy" / "{}.{}".format(*interpreter.version)

    def install(self):
        if self._imported() or self.directory.exists():
            return None
        pip = PyPI("pip", "pip")
        part = self.directory.with_suffix(".part")
        took, said = timed([str(pip.program), "install", "-q", "--disable-pip-version-check", "--no-deps",
                            "--only-binary=:all:", "--python-version", self.directory.name, "--target", str(part),
                            "debugpy"], timeout=300) if not pip.install() else (None, "no virtual environment")
        if took is None:
            return f"pip failed: {said.strip().splitlines()[-1]}"
        part.rename(self.directory)
        return None

    def _imported(self):
        return subprocess.run(self.interpreter.command("-c", "import debugpy"), capture_output=True).returncode == 0

    def inside(self):
        """Its directory as the interpreter sees it, as an argument; nothing where it is found without."""
        if self._imported():
            return []
        if self.interpreter.root == pathlib.Path("/"):
            return [str(self.directory)]
        copy = self.interpreter.directory / f"debugpy-{self.directory.name}"
        if not copy.exists():
            shutil.copytree(self.directory, copy)
        return [self.interpreter.path(copy.name)]


class Gdb:
    name = "gdb py-bt"

    def install(self):
        return None if shutil.which("gdb") else "not installed"

    def command(self, target):
        interpreter = target.interpreter
        minor = "%d.%d" % interpreter.version[:2]
        beside = pathlib.Path(interpreter.executable).with_name(f"python{minor}-gdb.py")
        script = next((p for p in (beside, pathlib.Path(
            f"/usr/share/gdb/auto-load/usr/bin/python{minor}-gdb.py")) if p.exists()), None)
        if script is None or interpreter.root != pathlib.Path("/"):
            return None
        return ["gdb", "-q", "-batch", "-nx", "-p", str(target.pid), "-ex", f"source {script}",
                "-ex", "thread apply all py-bt"]


PEERS = [Sampling(), PyPI("py-spy", "py-spy", "dump", "--pid"),
         PyPI("pystack", "pystack", "remote", "--exhaustive"), Gdb()]


def usable_peers(wanted, peers=PEERS):
    usable = []
    for peer in peers if wanted else []:
        why = peer.install() if hasattr(peer, "install") else None
        if why:
            skip(peer.name, why)
        else:
            usable.append(peer)
    return usable


@contextlib.contextmanager
def proc_in_root(root):
    """profiling.sampling reads /proc, which the sid root has only while this lasts."""
    if root == pathlib.Path("/") or os.path.ismount(root / "proc"):
        yield
        return
    subprocess.run(["mount", "-t", "proc", "proc", str(root / "proc")], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(root / "proc")], check=True)


# --- the same for running code in a target: command(target, code) --------------------------------


class RemoteExec:
    """CPython 3.14's own; the code must lie in a file that the target can read."""
    name = "sys.remote_exec"

    def command(self, target, code):
        if target.interpreter.version < (3, 14):
            return None
        script = target.interpreter.directory / "bench_remote.py"
        script.write_text(code)
        call = f"import sys; sys.remote_exec({target.pid}, {target.interpreter.path(script.name)!r})"
        return target.interpreter.command("-c", call)


class Pdb:
    name = "pdb -p"

    def command(self, target, code):
        if target.interpreter.version < (3, 14):
            return None
        pdb = " ".join(target.interpreter.command("-m", "pdb", "-p", target.pid))
        return ["sh", "-c", f"printf '%s\\n' \"$1\" detach | {pdb}", "sh", code]


class GdbLoad:
    """Loads a library, which is what an injector does; the code doesn't matter."""
    name = "gdb, call dlopen()"

    def install(self):
        return None if shutil.which("gdb") else "not installed"

    def command(self, target, code):
        if target.interpreter.root != pathlib.Path("/"):
            return None
        library = target.interpreter.directory / "storm" / "checks.so"
        return ["gdb", "-q", "-batch", "-nx", "-p", str(target.pid), "-ex",
                f'print ((void *(*)(const char *, int)) dlopen)("{library}", 2)']


class Hypno(PyPI):
    def __init__(self):
        super().__init__("hypno", "hypno")

    def command(self, target, code):
        return [str(self.program), str(target.pid), code]


class Pyrasite(PyPI):
    """By gdb."""

    def __init__(self):
        super().__init__("pyrasite", "pyrasite")

    def command(self, target, code):
        if target.interpreter.root != pathlib.Path("/"):
            return None
        script = target.interpreter.directory / "bench_payload.py"
        script.write_text(code)
        return [str(self.program), str(target.pid), str(script)]


RUNNERS = [RemoteExec(), Pdb(), GdbLoad(), Hypno(), Pyrasite()]
