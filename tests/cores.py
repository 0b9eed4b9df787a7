"""Core files of victims, and a mount that shows them."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from interpreters import patience


def gcore(target, to):
    """The core file of a victim that goes on living, and whether memory of it is missing there: gdb 13 leaves out what
    follows a guard page of glibc 2.43, which no mapping of its own shows."""
    executable = shutil.which("gcore") or pytest.skip("there is no gcore")
    ran = subprocess.run([executable, "-o", str(to / "core"), str(target.pid)], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=patience(60))
    path = to / f"core.{target.pid}"
    assert path.exists(), ran.stdout + ran.stderr
    lost = re.findall(r"Memory read failed for corefile section, \d+ bytes at 0x(?!ffffffff)", ran.stderr)
    return path, bool(lost)


def dumped(target, ended=None):
    """The one that the kernel wrote when it died. ended: the status of who has waited for it; else it is its own."""
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if pattern.startswith(("|", "/")):
        pytest.skip(f"the kernel's core files go elsewhere: {pattern}")
    status = target.process.wait(patience(60))
    path = next(target.cwd.glob("core*"), None) if status == ended or status < 0 else None
    assert path, f"it ended with {status}: {target.stderr()}"
    return path


def root_of(target):
    """The options of the mount without which what the kernel dumped of it isn't found."""
    return [] if str(target.interpreter.root) == "/" else [f"sysroot={target.interpreter.root}"]


def show(probe, *options):
    """A mount with core files: core=FILE, sysroot=DIR. Returns it and the directory of the only one."""
    mounted = probe.mount(*options)
    names = os.listdir(mounted.path / "cores")
    return mounted, mounted.path / "cores" / names[0]
