"""probefs-dap under the protocol's own test client, which npm has."""
import json
import shutil
import subprocess

import pytest

from dap import PROGRAM
from fetched import fetched
from interpreters import eventually, patience
from mount import REPOSITORY
from test_dap import BODY, LEAF, RETURN, SOURCE, line_of

PACKAGE = "@vscode/debugadapter-testsupport"
STEPS = ["begins", "stops", "looks", "evaluates", "changes", "completes", "steps", "logs", "catches", "leaves"]


@pytest.fixture(scope="module")
def client():
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    where = fetched("testsupport-1.68.0", f"node_modules/{PACKAGE}/package.json",
                    ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", ".",
                     f"{PACKAGE}@1.68.0"])
    return where / "node_modules" / PACKAGE


def test_session(probe, any_python, client):
    if not PROGRAM.exists():
        pytest.skip("probefs-dap is not built: jansson is missing")
    target = any_python.run_source(SOURCE)
    lines = {"body": BODY, "return": RETURN, "leaf": LEAF, "raise": line_of("        raise KeyError(i)")}
    run = subprocess.Popen(["node", REPOSITORY / "tests" / "testsupport.js", client, PROGRAM, probe.path,
                            str(target.pid), target.path(), json.dumps(lines)], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    done = []
    for line in run.stdout:
        kind, _, words = line.strip().partition(" ")
        if kind == "go":
            target.send(words)
        else:
            done.append(words)
    assert run.wait(patience(60)) == 0, (done, run.stderr.read())
    assert done == STEPS
    run.stdout.close()
    run.stderr.close()
    target.expect("1045")
    target.expect("3")
    lines = probe.path / str(target.pid) / "breakpoints"
    eventually(lambda: lines.read_text() == "", what="no breakpoint")  # which go when its files are closed
