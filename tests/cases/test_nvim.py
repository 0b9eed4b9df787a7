"""probefs-dap under Neovim with nvim-dap, of Debian 12's age; what nvim-dap saw counts."""
import json
import os
import shutil
import subprocess

import pytest

from dap import PROGRAM
from fetched import cloned
from interpreters import eventually, patience
from mount import REPOSITORY
from test_dap import BODY, LEAF, RETURN, SOURCE

STEPS = ["attach", "condition, scopes", "evaluate, change", "step", "log", "count, out", "disconnect"]


@pytest.fixture(scope="module")
def plugin():
    if not shutil.which("nvim"):
        pytest.skip("nvim is not installed")
    return cloned("nvim-dap-0.6.0", "https://github.com/mfussenegger/nvim-dap", "0.6.0", "lua/dap.lua")


def test_session(probe, any_python, plugin, tmp_path):
    if not PROGRAM.exists():
        pytest.skip("probefs-dap is not built: jansson is missing")
    target = any_python.run_source(SOURCE)
    env = {**os.environ, "ADAPTER": str(PROGRAM), "MOUNT": str(probe.path), "PID": str(target.pid),
           "FILE": target.path(), "LINES_OF": json.dumps({"body": BODY, "return": RETURN, "leaf": LEAF}),
           "DEADLINE": str(patience(30)), "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    run = subprocess.Popen(["nvim", "--headless", "-n", "-i", "NONE", "-u", "NORC", "--cmd", f"set rtp^={plugin}",
                            "-S", REPOSITORY / "tests" / "nvim.lua"], env=env, stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen, last = [], ""
    for line in run.stdout:
        kind, _, words = line.strip().partition(" ")
        if kind == "go":
            target.send(words)
        elif kind == "saw":
            seen.append(words)
        elif kind:
            last = line.strip()
    said = run.stderr.read()
    assert (run.wait(patience(30)), last, seen) == (0, "end", STEPS), f"{last} {said}"
    run.stdout.close()
    run.stderr.close()
    target.expect("145")
    target.expect("7")
    directory = probe.path / str(target.pid)
    eventually(lambda: (directory / "breakpoints").read_text() == "", what="that nothing is left behind")
    assert target.stderr() == ""
