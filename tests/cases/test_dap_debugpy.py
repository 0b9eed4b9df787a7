"""probefs-dap under debugpy's own scenarios for attaching to a process. `tests/debugpy/scenarios.txt` says of each
whether it passes, or why it can't apply; those aren't run, unless PROBEFS_TEST_DEBUGPY=all."""
import os
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from dap import PROGRAM
from fetched import cloned, costly, fetched
from interpreters import patience
from mount import REPOSITORY

pytestmark = [pytest.mark.long, pytest.mark.deadline(1800)]

VERSION = "1.8.21"
HERE = REPOSITORY / "tests" / "debugpy"
WANTED = ["pytest", "pytest-timeout", "pytest-xdist", "psutil", "py", "importlib_metadata", "untangle", "requests",
          "typing_extensions", "numpy", "gevent", f"debugpy=={VERSION}"]


def scenarios():
    """{scenario: why it can't apply, "" for one that passes}"""
    found, why = {}, ""
    for line in (HERE / "scenarios.txt").read_text().splitlines():
        if line.startswith("# "):
            why = line.removeprefix("# ").removeprefix("pass")
        elif line:
            found[line] = why
    return found


@pytest.fixture(scope="module")
def theirs():
    """(their repository, a Python that has what their tests import)"""
    costly()
    if not PROGRAM.exists():
        pytest.skip("probefs-dap is not built: jansson is missing")
    environment = fetched(f"debugpy-{VERSION}-python", "whole", [sys.executable, "-m", "venv", "."],
                          ["bin/pip", "install", "-q", "--disable-pip-version-check", *WANTED], ["touch", "whole"],
                          timeout=300)
    repository = cloned(f"debugpy-{VERSION}", "https://github.com/microsoft/debugpy", f"v{VERSION}",
                        "tests/debugpy/test_breakpoints.py")
    return repository, environment / "bin" / "python3"


def run(theirs, probe, directory, names):
    """{scenario: how it went} of those with names"""
    repository, python = theirs
    if not (directory / "tests").exists():
        shutil.copytree(repository / "tests", directory / "tests")  # where they leave what they log
    (directory / "names").write_text("\n".join(names))
    report = directory / "report.xml"
    report.unlink(missing_ok=True)
    env = {**os.environ, "PYTHONPATH": str(HERE), "PROBEFS_DAP": str(PROGRAM), "PROBEFS_MOUNT": str(probe.path),
           "PROBEFS_SCENARIOS": str(directory / "names")}
    said = subprocess.run([python, "-m", "pytest", "-p", "over_files", "-n", "4", "--timeout", str(patience(60)),
                           "--timeout-method=signal", "-q", "--tb=short", f"--junitxml={report}", "tests/debugpy"],
                          cwd=directory, env=env, capture_output=True, text=True)
    assert report.exists(), said.stdout + said.stderr
    went = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [part.tag for part in case if part.tag in ("failure", "error", "skipped")]
        name = f"{case.get('classname').rpartition('.')[2]}.py::{case.get('name')}"
        went[name] = bad[0] if bad else "pass"
    return went, said.stdout


def test_scenarios(probe, theirs, tmp_path):
    listed = scenarios()
    wanted = [name for name, why in listed.items() if not why or os.environ.get("PROBEFS_TEST_DEBUGPY") == "all"]
    went, said = run(theirs, probe, tmp_path, wanted)
    again = [name for name in wanted if not listed[name] and went.get(name) != "pass"]
    if again:  # they have deadlines of seconds, whatever else this machine does
        more, said = run(theirs, probe, tmp_path, again)
        went.update(more)
    differ = {name: went.get(name) for name in wanted if (went.get(name) == "pass") != (not listed[name])}
    assert not differ, f"{differ}\n{said}"
