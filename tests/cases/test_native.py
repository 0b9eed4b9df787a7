"""Native frames and their places between the Python frames, against gdb's."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess

import pytest

from interpreters import eventually, patience
from sql import settle
from stacks import parse_backtrace

GDB = pathlib.Path(__file__).resolve().parent.parent / "gdb_frames.py"
EVAL = "_PyEval_EvalFrameDefault"

pytestmark = [pytest.mark.long, pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")]


class Modules:
    """Addresses as the files have them, from the mappings."""

    def __init__(self, pid):
        self.mappings, self.biases = [], {}
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, _, offset, _, _, *path = line.split(maxsplit=5)
            path = path[0] if path else ""
            start, end = (int(a, 16) for a in span.split("-"))
            self.mappings.append((start, end, path))
            if path == "[vdso]":
                self.biases[path] = start
            elif path.startswith("/") and int(offset, 16) == 0:
                self.biases.setdefault(path, start if self._moves(path) else 0)

    @staticmethod
    def _moves(path):
        try:
            with open(path, "rb") as file:
                head = file.read(18)
        except FileNotFoundError:
            return True  # a memfd
        ET_DYN = 3
        return head[:4] == b"\x7fELF" and struct.unpack_from("<H", head, 16)[0] == ET_DYN

    def place(self, pc):
        for start, end, path in self.mappings:
            if start <= pc < end and path in self.biases:
                return os.path.basename(path).removesuffix(" (deleted)"), pc - self.biases[path]
        return "", pc


def ask_gdb(target, tmp_path, times=1, read=None, names=()):
    order = {"pid": target.pid, "times": times, "read": read and str(read), "names": list(names),
             "root": str(target.interpreter.root), "out": str(tmp_path / "out.json")}
    (tmp_path / "order.json").write_text(json.dumps(order))
    ran = subprocess.run(["gdb", "-nx", "-batch", "-x", str(GDB)], capture_output=True, text=True,
                         timeout=patience(100), env={**os.environ, "PROBEFS_GDB": str(tmp_path / "order.json")})
    assert (tmp_path / "out.json").exists(), ran.stdout[-2000:] + ran.stderr[-2000:]
    return json.loads((tmp_path / "out.json").read_text())


def lines_of(thread):
    """[(name, (module, offset)) for a native frame, None for a Python one], innermost first."""
    native = {at: (name, place) for at, name, place in thread.native}
    lines = []
    for at in range(len(thread.lines)):
        if at in native:
            name, place = native[at]
            module, _, offset = place.rpartition("+")  # "": code that was made at run time, libffi's closures
            lines.append((name, (module, int(offset, 16))))
        else:
            lines.append(None)
    return lines


def check_names(ours, pc, theirs, addresses):
    if ours == "??" or theirs is None or theirs.split("@")[0] == ours or \
            ours.startswith(theirs + "."):  # gdb leaves out the number of a compiler's copy
        return
    assert addresses.get(theirs) is not None and addresses.get(theirs) == addresses.get(ours), \
        f"{ours}, and {theirs} for gdb, at {pc:x}"


def check_thread(thread, frames, modules, version, addresses=None, still=True):
    """Every native frame is gdb's next one, and exactly the calls of the evaluation loop are left
    out, each where it runs Python frames."""
    at = python = 0
    for number, line in enumerate([*lines_of(thread), "end"]):
        if line is None:
            python += 1
            continue
        left_out = []
        while at < len(frames) and (line == "end" or modules.place(frames[at][0]) != line[1]):
            left_out.append(frames[at][1])
            at += 1
        where = f"before line {number} of {thread.name}, {line}, gdb has {left_out}"
        assert line == "end" or at < len(frames), where
        assert all(name is None or EVAL in name for name in left_out), where
        if still:
            assert len(left_out) == (python if version < (3, 11) else min(python, 1)), where
        else:  # a call may have just begun, and have no frame yet, or have ended
            assert len(left_out) <= python + 1 and (left_out or not python), where
        if line != "end":
            assert EVAL not in (frames[at][1] or ""), line
            if addresses is not None:
                check_names(line[0], *frames[at], addresses)
            at += 1
        python = 0


def read_still(probe, target):
    """The backtrace once all threads have come to rest; "ready" is written before that."""
    settle(target)
    return parse_backtrace(probe.read(target.pid, "backtrace"), target.pid)


def test_same_as_gdb(probe, python, tmp_path):
    target = python.run("native.py")
    seen = read_still(probe, target)
    names = {name for thread in seen.threads.values() for _, name, _ in thread.native}
    said = ask_gdb(target, tmp_path, names=names)
    modules = Modules(target.pid)
    checked = 0
    for tid, frames in said["seen"][0]["threads"].items():
        thread = seen.threads[int(tid)]
        assert thread.unreadable + thread.native_end == [], thread.lines
        check_thread(thread, frames, modules, python.version, said["addresses"])
        checked += len(thread.native)
    assert len(said["seen"][0]["threads"]) == len(seen.threads)
    assert checked > 200


@pytest.mark.python(builds=True)
def test_while_gdb_holds_it(probe, python, tmp_path):
    """Stopped anywhere by another tracer: still without stopping it ourselves."""
    target = python.run("native_spinner.py")
    said = ask_gdb(target, tmp_path, times=24, read=probe.path / str(target.pid) / "backtrace")
    modules = Modules(target.pid)
    complete, marked = 0, []
    for moment in said["seen"]:
        thread = parse_backtrace(moment["text"], target.pid).threads[target.pid]
        assert "traced" in thread.state
        if not thread.unreadable + thread.native_end:
            check_thread(thread, moment["threads"][str(target.pid)], modules, python.version,
                         still=False)
            complete += 1
        else:  # what is shown of native frames is right nevertheless
            marked += thread.unreadable + thread.native_end
            places = {modules.place(pc) for pc, _ in moment["threads"][str(target.pid)]}
            assert {line[1] for line in lines_of(thread) if line} <= places, thread.lines
    assert complete >= 3, marked  # builds with frame pointers are complete half of the time
    target.signal(0)
    eventually(lambda: target.state() in ("R", "S"), what="going on")


def test_names_in_order(probe, python):
    """A callback from C: the innermost frames, what lies between, and the outermost ones."""
    target = python.run("native.py")
    seen = read_still(probe, target)
    thread = next(t for t in seen.threads.values() if t.name == "by_qsort")
    words = [re.match(r"  #\d+ +(\S+)", line)[1] for line in thread.lines]
    sort = next(i for i, word in enumerate(words) if "qsort" in word and word != "by_qsort")
    assert words.index("wait") < sort < words.index("by_qsort")
    assert seen.threads[target.pid].native[-1][1] == "_start"
    assert any("libffi" in place for _, _, place in thread.native)
    assert not any(EVAL in line for line in thread.lines)
