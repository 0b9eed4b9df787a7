"""sources/<file>: the text of the files that code of a process comes from. Names and texts come from the target; files
are read with the rights of who asks."""
import errno
import json
import os
import pwd
import subprocess
import zipfile

from commands import failure
from interpreters import eventually, patience

PROGRAM = r"""
import json, linecache, os, sys
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "packed.zip"))
sys.path.insert(0, os.path.dirname(__file__))

def wait():
    print("ready", flush=True)
    sys.stdin.read()

def keep(name, text):
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)

def through(names):
    "Calls through code of all these names, and waits at its end."
    if not names:
        return wait()
    exec(compile("\n\nthrough(names)", names[0], "exec"), {"through": through, "names": names[1:]})

said = json.loads(sys.argv[1])
for name in said.get("modules", ()):
    __import__(name)
for name, text in said.get("cache", {}).items():
    keep(name, text)
keep("<large>", ("#" * 99 + "\n") * 9000)
linecache.lazycache("/lazy.py", {"__name__": "lazy", "__loader__": __loader__})
linecache.cache["/odd.py"] = "no tuple"
linecache.cache["/odder.py"] = (1, None, [1, None], "/odder.py")
linecache.cache[("no", "str")] = (1, None, ["x\n"], "x")
through(said.get("stack", []))
"""


def name_of(path):
    """The name that sources/ has for a path."""
    text = "".join("!" if c == "/" else f"\\x{ord(c):02x}" if c in "!\\" else
                   {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(c, f"\\x{ord(c):02x}") if c < " " or c == "\x7f" else c
                   for c in path)
    return text if text.strip(".") else "\\x2e" + text[1:]


class Asked:
    """A program, and its sources."""

    def __init__(self, probe, python, user=None, **said):
        self.target = python.run_source(PROGRAM, json.dumps(said), name="asked.py", user=user)
        self.directory = probe.path / str(self.target.pid) / "sources"

    def read(self, path):
        return (self.directory / name_of(path)).read_text()

    def refused(self, path):
        """The error, and the words."""
        number = failure((self.directory / name_of(path)).read_text)
        last = (self.directory.parent / "errors").read_text().splitlines()[-1]
        return number, last.partition(f"{errno.errorcode[number]} ")[2]


HOSTILE = "<a/b!c\\d\n\x1b[31m>"
CELL = "def cell():\n\twait()\r\n# \x1b[31m é\ncell()\n"
SHOWN = "def cell():\n\twait()\n# \\x1b[31m é\ncell()\n"


def test_where_texts_come_from(probe, python):
    with zipfile.ZipFile(python.directory / "packed.zip", "w") as archive:
        archive.writestr("packed_of_sources.py", "packed = 1\n")
        archive.writestr("other_of_sources.py", "other = 2\n")
    (python.directory / "plain_of_sources.py").write_text("plain = 3\n# the end")
    (python.directory / "fifo_of_sources.py").unlink(missing_ok=True)
    os.mkfifo(python.directory / "fifo_of_sources.py")
    packed, other = python.path("packed.zip/packed_of_sources.py"), python.path("packed.zip/other_of_sources.py")
    plain, fifo = python.path("plain_of_sources.py"), python.path("fifo_of_sources.py")
    large, long = "<large>", "/" + "x" * 300
    line = "#" * 99 + "\n"
    asked = Asked(probe, python, modules=["packed_of_sources", "other_of_sources", "plain_of_sources"],
                  cache={packed: "packed = 1\n", HOSTILE: CELL, plain: "another text\n", long: "x\n",
                         "..": "dots\n", "relative/../up.py": "up\n"},
                  stack=[HOSTILE, "<string>", "/absent.py", fifo, "/proc/self/maps"])
    names = os.listdir(asked.directory)
    for path in (python.path("asked.py"), packed, other, plain, HOSTILE, large, fifo, "/absent.py", "/proc/self/maps",
                 "..", "relative/../up.py"):
        assert name_of(path) in names
    assert len(names) == len(set(names)) and not any("/" in name or "\n" in name or "\x1b" in name for name in names)
    # neither what has no text at all, nor what can't be a name
    assert not {name_of(path) for path in ("<string>", long, "/lazy.py", "/odd.py", "x")} & set(names)
    assert not [name for name in names if name.endswith((".so", ".pyc"))]
    # the disk goes before linecache
    assert asked.read(plain) == "plain = 3\n# the end" and asked.read(python.path("asked.py")) == PROGRAM
    assert asked.read(packed) == "packed = 1\n" and asked.read(HOSTILE) == SHOWN
    assert asked.read("..") == "dots\n" and asked.read("relative/../up.py") == "up\n"
    text = asked.read(large)
    assert text.endswith(line + "... (cut: more than 512 KiB)\n") and 512 << 10 < len(text) < 514 << 10
    no_text = "and the process's linecache has no text of it"
    assert asked.refused("/absent.py") == (errno.ENOENT, f"!absent.py: No such file or directory, {no_text}")
    assert asked.refused(other) == (errno.ENOTDIR, f"{name_of(other)}: Not a directory, {no_text}")
    assert asked.refused(fifo) == (errno.ENOENT, f"{name_of(fifo)} is not a regular file, {no_text}")
    assert asked.refused("/proc/self/maps")[0] == errno.ENOENT
    assert "unreadable" in asked.read("/odder.py")
    # what isn't its own isn't there
    for path in "/etc/passwd", "<string>", "/usr/../etc/passwd":
        assert failure(asked.read, path) == errno.ENOENT
    # the standard library, from the root of the process
    (module,) = [name for name in names if name.endswith("!linecache.py")]
    assert (asked.directory / module).read_text() == \
        (python.root / module.replace("!", "/").lstrip("/")).read_text().replace("\f", "\\x0c")
    assert asked.target.state() == "S"


def test_large_file(probe, any_python):
    (any_python.directory / "huge_of_sources.py").write_text("#" * 99 + "\n" + "x" * (2 << 20))
    fits = "y = '" + "z" * 100000 + "'\n"
    (any_python.directory / "wide_of_sources.py").write_text(fits)
    huge, wide = any_python.path("huge_of_sources.py"), any_python.path("wide_of_sources.py")
    asked = Asked(probe, any_python, stack=[huge, wide])
    assert asked.read(wide) == fits
    assert asked.refused(huge)[0] == errno.EFBIG and "has more than 2 MiB" in asked.refused(huge)[1]


def test_rights(probe, any_python, nobody):
    """A target can't make the daemon read a file to its user; what it has itself it shows."""
    directory = any_python.directory
    for name in "secret_of_sources.py", "both_of_sources.py":
        (directory / name).write_text("the secret\n")
        (directory / name).chmod(0o600)
    (directory / "link_of_sources.py").unlink(missing_ok=True)
    (directory / "link_of_sources.py").symlink_to(any_python.path("secret_of_sources.py"))
    secret, both, link = (any_python.path(f"{name}_of_sources.py") for name in ("secret", "both", "link"))
    asked = Asked(probe, any_python, user=nobody, cache={both: "its own\n"}, stack=[secret, link, "/etc/shadow"])
    other = probe.mount("allow_other").path / str(asked.target.pid) / "sources"
    entry = pwd.getpwnam(nobody)

    def read_as_nobody(path):
        return subprocess.run(["cat", other / name_of(path)], user=entry.pw_uid, group=entry.pw_gid, extra_groups=[],
                              capture_output=True, text=True, timeout=patience(60))

    for path in secret, link, "/etc/shadow":
        done = read_as_nobody(path)
        assert done.returncode and not done.stdout and "Permission denied" in done.stderr
    assert read_as_nobody(both).stdout == "its own\n"
    assert asked.read(secret) == asked.read(both) == "the secret\n"


def test_command_line(probe, python):
    """The text of -c, which the interpreter itself keeps from 3.13 on."""
    code = "import sys, linecache\nprint('ready', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(python.command("-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            directory = probe.path / str(process.pid) / "sources"
            names = eventually(lambda: os.listdir(directory), what="its sources")
            assert ("<string>" in names) == (python.version >= (3, 13))
            if "<string>" in names:
                assert (directory / "<string>").read_text() == code + "\n"
        finally:
            process.kill()
