"""probefs-dap under the protocol's own test client, which npm has."""
import json
import shutil
import subprocess

import pytest

from dap import PROGRAM
from interpreters import CACHE, patience
from mount import REPOSITORY
from test_dap import BODY, LEAF, RETURN, SOURCE, line_of

PACKAGE = "@vscode/debugadapter-testsupport"
STEPS = ["begins", "stops", "looks", "evaluates", "changes", "completes", "steps", "logs", "catches", "leaves"]


@pytest.fixture(scope="module")
def client():
    """Where it lies; it is kept between runs."""
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    where = CACHE / "npm" / "testsupport"
    if not (where / "node_modules" / PACKAGE).exists():
        where.mkdir(parents=True, exist_ok=True)
        run = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", where,
                              f"{PACKAGE}@1.68.0"], capture_output=True, text=True, timeout=patience(120))
        if run.returncode:
            pytest.skip(f"{PACKAGE}: npm: {(run.stderr.strip().splitlines() or ['failed'])[0]}")
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
    assert (probe.path / str(target.pid) / "breakpoints").read_text() == ""
