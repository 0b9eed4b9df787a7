"""source: the lines around a frame's current one, and whose rights count when they are read. The
names of files come from the target, so that it may name what it, or who asks, may not read."""
import json
import os
import pathlib
import pwd
import re
import signal
import subprocess
import time

import pytest

from interpreters import TARGETS, eventually, patience
from mount import Probe
from sql import ask

LINE = re.compile(r" *(\d+)  (->|  )  (.*)$")
CARETS = re.compile(r" {12}\s*\^+$")


LATE = "did not answer in time"


def in_time(read):
    """What this says once who read a file for it has had a processor in time."""
    return eventually(lambda: LATE not in (said := read()) and said, what="a source that is read in time")


def sources(probe, target, tid=None, read=in_time):
    """[(headline, {number: line}, current or None, reason or None), ...] of all frames."""
    frames = probe.path / str(target.pid) / "threads" / str(tid or target.pid) / "frames"
    said = []
    for depth in sorted(map(int, os.listdir(frames))):
        head, *rest = read(lambda: probe.read(frames / str(depth) / "source")).split("\n")[:-1]
        lines, current, reason = {}, None, None
        for line in rest:
            if CARETS.match(line):
                continue
            match = LINE.match(line)
            if not match:
                reason = line
                continue
            lines[int(match[1])] = match[3]
            if match[2] == "->":
                current = int(match[1])
        said.append((head, lines, current, reason))
    return said


def reason_for(probe, target, name, read=in_time):
    """Why there is no source for the frame whose code says that it is in the file `name`."""
    said = [s for s in sources(probe, target, read=read) if f"({name}:" in s[0]]
    assert len(said) == 1, said
    head, lines, _, reason = said[0]
    assert not lines
    return reason


def test_lines_around(probe, python):
    target = python.run("nested.py")
    for tid, thread in target.stacks().items():
        seen = sources(probe, target, tid)
        assert len(seen) == len(thread["frames"])
        for (head, lines, current, reason), (function, file, line) in zip(seen, thread["frames"]):
            assert head == f"{function} ({file}:{line})"
            if reason:
                assert file.startswith("<frozen") or "threading" in file, reason
                continue
            assert current == line
            if file.startswith(python.path("")):
                text = (TARGETS / pathlib.Path(file).name).read_text().split("\n")
                assert lines == {n: text[n - 1] for n in range(max(1, line - 5), line + 6)
                                 if n <= len(text) and (n < len(text) or text[n - 1])}


def carets(probe, target, depth):
    """The current line, and what of it the carets mark; None: there are none."""
    text = in_time(lambda: probe.read(target.pid, "threads", target.pid, "frames", depth, "source")).split("\n")
    at = next(i for i, line in enumerate(text) if LINE.match(line) and LINE.match(line)[2] == "->")
    if not CARETS.match(text[at + 1]):
        return None
    assert text[at + 1][:12] == " " * 12 and text[at + 1].count("\t") == text[at][:len(text[at + 1])].count("\t")
    return "".join(a for a, b in zip(text[at], text[at + 1]) if b == "^")


def test_positions(probe, python):
    """What a frame executes of its line: in the table backtrace and below the line."""
    target = python.run("positions.py")
    said = json.loads(target.readline())
    rows = ask(probe.path / str(target.pid) / "query",
               "SELECT depth, func, lineno, end_lineno, col, end_col FROM backtrace WHERE depth > 0 ORDER BY depth")
    numbers = [tuple(int(r[c]) if r[c] else None for c in ("lineno", "end_lineno", "col", "end_col")) for r in rows]
    assert numbers == [tuple(position) for position in said]
    marked = {r["func"]: carets(probe, target, r["depth"]) for r in rows}
    if python.version < (3, 11):
        assert set(marked.values()) == {None}
        return
    assert marked["one_line"] == "tell(value)"
    assert marked["several_lines"] == "one_line("
    assert marked["not_ascii"] == "several_lines(value)"
    assert marked["tabbed"] == "not_ascii(value)"
    assert marked["whole"] is marked["<module>"] is None, "it is all of the line"
    assert marked.get("chained.<locals>.<listcomp>", marked["chained"]) == "whole(x)"


def test_no_positions(probe, python):
    target = python.run("positions.py", env={"PYTHONNODEBUGRANGES": "1"})
    rows = ask(probe.path / str(target.pid) / "query",
               "SELECT lineno, end_lineno, col, end_col FROM backtrace WHERE depth > 0")
    assert all(r["lineno"] and not r["end_lineno"] and not r["col"] and not r["end_col"] for r in rows)
    assert carets(probe, target, 1) is None


ODD = "# caf\xe9\r\n\tcall(names)\x1b[31m\r\ncall(names)" + " " * 3000


def test_odd_files(probe, python):
    """Carriage returns, control characters, long lines, another encoding, no newline at the end,
    a name that is not ASCII."""
    path = python.directory / "gr\xfc\xdfe.py"
    path.write_text(ODD, encoding="latin-1", newline="")
    target = python.run("sources.py", python.path(path.name))
    (_, lines, current, reason), = [s for s in sources(probe, target) if path.name in s[0]]
    assert reason is None and current == 3
    assert lines[1] == "# caf\\xe9"
    assert lines[2] == "\tcall(names)\\x1b[31m"
    assert lines[3] == "call(names)" + " " * 501 + "..."
    assert len(lines) == 3


def test_no_file(probe, python):
    short = python.directory / "short.py"
    short.write_text("only one line\n")
    names = ["<string>", "<frozen something>", "/nowhere/at/all.py",
             python.path("sources.py") + "/inside.zip", python.path("short.py"),
             python.path(""), "/dev/null"]
    target = python.run("sources.py", *names)
    assert reason_for(probe, target, names[0]) == "(no source: <string> is no file)"
    assert reason_for(probe, target, names[1]) == "(no source: <frozen something> is no file)"
    assert "No such file or directory" in reason_for(probe, target, names[2])
    assert "Not a directory" in reason_for(probe, target, names[3])
    assert reason_for(probe, target, names[4]) == f"(no source: {names[4]} has no line 3)"
    assert "not a regular file" in reason_for(probe, target, names[5])
    assert "not a regular file" in reason_for(probe, target, names[6])


def test_relative_name(probe, any_python):
    """Relative to the working directory, and never out of it."""
    target = any_python.run("sources.py", "inside.txt", "../outside.txt")
    for path in target.cwd / "inside.txt", target.cwd.parent / "outside.txt":
        path.write_text("one\ntwo\nthree\n")
    seen = {head: lines for head, lines, _, _ in sources(probe, target)}
    assert seen["<module> (inside.txt:3)"][3] == "three"
    assert "leads out" in reason_for(probe, target, "../outside.txt")


def test_links_stay_within_the_root(probe, python):
    """Absolute links are the target's, not the daemon's."""
    secret = python.directory / "inside.py"
    secret.write_text("one\ntwo\nthree\n")
    for name, to in ("link.py", ""), ("up.py", "/.." * 20):
        (python.directory / name).unlink(missing_ok=True)  # interpreters share directories
        (python.directory / name).symlink_to(to + python.path("inside.py"))
    target = python.run("sources.py", python.path("link.py"), python.path("up.py"))
    for name in "link.py", "up.py":
        (_, lines, current, _), = [s for s in sources(probe, target) if f"/{name}:" in s[0]]
        assert lines == {1: "one", 2: "two", 3: "three"} and current == 3


def test_proc_is_not_followed(probe, any_python):
    """There a name such as /proc/self/environ is the reader's own."""
    names = ["/proc/self/environ", "/proc/self/status", "/proc/self/root/etc/passwd",
             "/proc/1/status", "/proc/version"]
    target = any_python.run("sources.py", *names)
    for name in names:
        assert reason_for(probe, target, name)


def test_fifo(probe, any_python):
    """A pipe would wait for a writer."""
    fifo = any_python.directory / "fifo.py"
    os.mkfifo(fifo)
    target = any_python.run("sources.py", any_python.path("fifo.py"))
    assert "not a regular file" in reason_for(probe, target, any_python.path("fifo.py"))


def read_as(user, path):
    """What `cat` says to that user."""
    entry = pwd.getpwnam(user)
    return subprocess.run(["cat", str(path)], user=entry.pw_uid, group=entry.pw_gid,
                          extra_groups=[], capture_output=True, text=True, timeout=patience(60))


def test_rights_of_the_reader(probe, any_python, nobody, tmp_path):
    """A target can't make the daemon, which is root, read a file to its user."""
    secret = any_python.directory / "secret.py"
    secret.write_text("one\nthe secret\nthree\n")
    secret.chmod(0o600)
    link = any_python.directory / "to-secret.py"
    link.symlink_to(any_python.path("secret.py"))
    hidden = any_python.directory / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "file.py").write_text("one\nthe secret\nthree\n")
    group = any_python.directory / "group.py"  # the daemon's groups don't count either
    group.write_text("one\nthe secret\nthree\n")
    group.chmod(0o640)
    open_ = any_python.directory / "open.py"
    open_.write_text("one\ntwo\nthree\n")
    open_.chmod(0o644)
    names = [any_python.path(name) for name in
             ("secret.py", "to-secret.py", "hidden/file.py", "group.py", "open.py")]
    target = any_python.run("sources.py", "/etc/shadow", *names, user=nobody)
    other = probe.mount("allow_other")
    frames = other.path / str(target.pid) / "threads" / str(target.pid) / "frames"
    assert pathlib.Path("/etc/shadow").stat().st_mode & 0o004 == 0

    def read(depth):
        done = read_as(nobody, frames / str(depth) / "source")
        return done.stdout or done.stderr  # there are no 20

    said = [in_time(lambda: read(depth)) for depth in range(20)]
    assert not any("secret\n" in text or "root:" in text for text in said), said
    denied = [text for text in said if "Permission denied" in text]
    assert len(denied) == 5
    assert any("->  three" in text for text in said)
    # while root may read all of it
    assert sum("the secret" in in_time(lambda: other.read(frames / str(depth) / "source"))
               for depth in range(15) if (frames / str(depth)).exists()) == 4


def test_file_system_that_hangs(probe, any_python):
    """A file system that does not answer costs its deadline, not the daemon."""
    with Probe() as other:
        name = str(other.path / "help")
        target = any_python.run("sources.py", name)
        assert any(name in head and current == 3 for head, _, current, _ in
                   sources(probe, target))
        os.kill(other.pid, signal.SIGSTOP)
        try:
            start = time.monotonic()
            assert LATE in reason_for(probe, target, name, read=lambda once: once())
            assert time.monotonic() - start < patience(60)
        finally:
            os.kill(other.pid, signal.SIGCONT)


ITSELF = """
import os, sys, time
name = sys.argv[1] % (os.getpid(), os.getpid())
exec(compile("print('ready', flush=True) or time.sleep(10 ** 6)", name, "exec"))
"""


@pytest.mark.attack
def test_a_source_that_is_itself(probe, any_python, nobody):
    """Reading it reads it: that ends, leaves threads for others, and no child behind."""
    mount = probe.mount("allow_other")
    target = any_python.run_source(ITSELF, f"{mount.path}/%d/threads/%d/frames/0/source", user=nobody)
    path = mount.path / str(target.pid) / "threads" / str(target.pid) / "frames" / "0" / "source"

    def read():
        readers = [subprocess.Popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", path],
                                    stdout=subprocess.PIPE, text=True) for _ in range(12)]
        said = [reader.communicate(timeout=patience(60))[0] for reader in readers] + [mount.read(path)]
        assert not [text for text in said if not text.startswith("<module> (")]
        return said if not any(LATE in text for text in said) else None
    said = eventually(read, what="that it ends by itself")
    assert any("too many files are being read already, or hang: try again" in text for text in said[:12])
    eventually(lambda: len(mount.children()) == len(mount.owners()), what="that no child is left")
