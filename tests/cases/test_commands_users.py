"""Writing: who may."""
import os
import subprocess

import pytest

from command_files import WAIT, chosen
from commands import write
from test_access import DENIED, answer, run_as

pytestmark = pytest.mark.attack


def test_second_user(probe, any_python, nobody):
    """Replies are for those who asked; nobody else's process can be told anything."""
    mount = probe.mount("allow_other")
    mine, roots = any_python.run_source(WAIT, user=nobody), any_python.run_source(WAIT)
    path = mount.path / str(mine.pid) / "ctl"
    write(path, "interpreter 3\n")
    assert path.read_text().endswith("Interpreter: 3\nOnCrash: off\nInterpreter: 3\n")
    # nobody sees the state, and not what root was answered
    shown = run_as(nobody, "cat", path).stdout
    assert shown.endswith("Interpreter: 3\nOnCrash: off\n") and shown.count("Interpreter: 3") == 1
    result = run_as(nobody, "sh", "-c", f"echo 'interpreter 4' > {path} && cat {path}")
    assert result.stdout.endswith("Interpreter: 4\nOnCrash: off\nInterpreter: 4\n"), result.stderr
    assert path.read_text().endswith("Interpreter: 4\nOnCrash: off\nInterpreter: 3\n")

    path = mount.path / str(roots.pid) / "ctl"
    for command in (["dd", f"of={path}", "conv=notrunc", "if=/dev/null"], ["test", "-w", path],
                    ["truncate", "-s0", path], ["sh", "-c", f"echo attach > {path}"],
                    ["sh", "-c", f"echo attach >> {path}"], ["sh", "-c", f": <> {path}"]):
        assert run_as(nobody, *command).returncode != 0
    assert "Interpreter: 0\n" in path.read_text()


def test_descriptor_handed_over(probe, any_python, nobody):
    """Each write is checked: an open file gives its heir no more than their own rights."""
    mount = probe.mount("allow_other")
    path = mount.path / str(any_python.run_source(WAIT).pid) / "ctl"
    fd = os.open(path, os.O_RDWR)
    try:
        script = f"import os; os.write({fd}, b'interpreter 9\\n')"
        result = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
             *any_python.command("-c", script)], pass_fds=[fd], capture_output=True, text=True)
        assert result.returncode == 1 and "PermissionError" in result.stderr
    finally:
        os.close(fd)
    assert chosen(path) == 0


def test_hidden_processes(probe, any_python, nobody):
    """A process that hides its memory from its user obeys only root."""
    mount = probe.mount("allow_other", "hidepid=0")
    hide = "import ctypes, sys; ctypes.CDLL(None).prctl(4, 0); print('ready'); sys.stdin.read()"
    path = mount.path / str(any_python.run_source(hide, user=nobody).pid) / "ctl"
    assert answer(run_as(nobody, "cp", "/dev/null", path)) in DENIED
    write(path, "interpreter 1\n")
