"""Programs that hold a whole CPython. Of those that export nothing of it what is read is right, and an agent is refused
before anything is touched."""
import errno
import pathlib
import shutil
import subprocess

import pytest

import builds
from commands import Commands
from interpreters import Interpreter, interpreters, patience
from stacks import parse_backtrace

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "targets" / "embedder.c"
LIBRARIES = ["-lz", "-lexpat", "-lm", "-ldl", "-lpthread", "-lutil"]
SCRIPT = """
import sys

answer = 42

def inner(number):
    doubled = number * 2
    print("ready", flush=True)
    sys.stdin.readline()

def outer():
    inner(21)

outer()
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds one, of Debian's static library: built("stripped, no PIE")."""
    directory = tmp_path_factory.mktemp("embedders")
    debian = next((i for i in interpreters() if i.source == "debian"), None)
    if not debian or not shutil.which("gcc"):
        pytest.skip("no gcc, or not Debian's python3")
    code = ("import sysconfig as s\n"
            "print(s.get_config_var('LIBPL'), s.get_path('include'), s.get_config_var('LDVERSION'))")
    libraries, include, version = subprocess.check_output(debian.command("-c", code), text=True).split()
    library = pathlib.Path(libraries) / f"libpython{version}-pic.a"
    if not library.exists():
        pytest.skip("no static libpython (python3-dev)")

    def build(kind):
        made = directory / kind.replace(", ", "-").replace(" ", "-")
        flags = {"stripped": "-s", "no PIE": "-no-pie", "packed relocations": "-Wl,-z,pack-relative-relocs",
                 "exported": "-Wl,--export-dynamic", "hidden": "-Wl,--exclude-libs,ALL"}
        subprocess.run(["gcc", "-o", made, SOURCE, f"-I{include}",
                        *(flags[word] for word in kind.split(", ") if word in flags), str(library), *LIBRARIES],
                       check=True, capture_output=True, text=True)
        return Interpreter("embedded", debian.version, str(made))
    return build


def judged(probe, target):
    """Reads all that it should say."""
    directory = probe.path / str(target.pid)
    status = (directory / "status").read_text()
    version = ".".join(map(str, target.interpreter.version[:3]))
    assert f"\nPython: {version}\n" in status and "\nSupported: yes\n" in status, status
    thread = parse_backtrace((directory / "backtrace").read_text(), target.pid).threads[target.pid]
    assert [function for function, _, _ in thread.frames] == ["inner", "outer", "<module>"], thread
    assert "doubled = 42\n" in (directory / "threads" / str(target.pid) / "frames" / "0" / "locals").read_text()


@pytest.mark.parametrize("kind", ["static", "stripped", "stripped, no PIE", "stripped, packed relocations", "hidden"])
def test_is_read(probe, built, kind):
    judged(probe, built(kind).run_source(SCRIPT))


def test_gil_kept_asleep(probe, built):
    """Who has the GIL and sleeps in C may keep it for ever: that is said soon, with the thread and its call."""
    target = built("exported").run_source("print('ready', flush=True)\n", env={"KEEPS_GIL": "1"})
    commands = Commands(probe, target.pid)
    for name, text in [("eval", "6 * 7\n"), ("breakpoints", "log source.py:1\n"), ("ctl", "record gc\n")]:
        number, words = commands.refused(name, text)
        assert number == errno.ETIMEDOUT and "the GIL was not to be had within 1 s" in words, words
        assert f"; thread {target.pid} (" in words and ") holds it and sleeps outside Python, in read: " in words, words
        assert "--enable-threads" in words, words
    target.send("")
    target.expect("done")
    assert commands.eval("6 * 7") == "42\n"
    commands.detach()
    target.send("")
    assert target.process.wait(patience(60)) == 0, target.stderr()


@pytest.mark.parametrize("kind", ["static", "stripped", "stripped, no PIE"])
def test_is_refused_before_anything_is_touched(probe, built, kind):
    target = built(kind).run_source(SCRIPT)
    commands = Commands(probe, target.pid)
    before = pathlib.Path(f"/proc/{target.pid}/maps").read_text()
    number, words = commands.refused("ctl", "attach\n")
    assert number == errno.EOPNOTSUPP and "static libpython" in words and "--export-dynamic" in words, words
    assert pathlib.Path(f"/proc/{target.pid}/maps").read_text() == before
    judged(probe, target)


@pytest.mark.parametrize("kind", ["exported, packed relocations", "exported, no PIE"])
def test_exported(probe, built, kind):
    program = built(kind)
    target = program.run_source(builds.SCRIPT, name="tried.py")
    builds.looked_at(probe, target)
    builds.acted_in(probe, target)
    builds.ends(target)
    builds.note("static libpython, exported", program.version, look="yes", write="yes", breakpoints="yes")
