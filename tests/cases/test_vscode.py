"""The extension for VS Code, over a VS Code that notes what it is asked for."""
import json
import os
import shutil
import subprocess

import pytest

from interpreters import patience
from mount import REPOSITORY
from test_jobs import job_of

WAITS = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"


class Extension:
    def __init__(self, mount):
        if not shutil.which("node"):
            pytest.skip("node is not installed")
        self.process = subprocess.Popen(["node", REPOSITORY / "tests" / "extension.js",
                                         REPOSITORY / "contrib" / "vscode" / "extension.js", mount],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        assert not isinstance(said, dict) or "failed" not in said, said["failed"]
        return said

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(patience(30)) == 0
        self.process.stdout.close()


@pytest.fixture
def extension(probe):
    extension = Extension(str(probe.path))
    yield extension
    extension.close()


def test_list(extension, any_python, probe, tmp_path):
    """Ranks before all else; a click attaches."""
    env, _ = job_of(2)
    plain = any_python.run_source(WAITS, "word", name="plain.py").pid
    second, first = (any_python.run_source(WAITS, env={**env, "RANK": rank}).pid for rank in "10")
    rows = dict(extension("rows"))
    assert [pid for pid in rows if pid in (plain, first, second)] == [first, second, plain]
    assert rows[plain]["label"].endswith(" plain.py word") and "/" not in rows[plain]["label"]
    assert rows[plain]["contextValue"] == "process" and rows[first]["contextValue"] == "rank"
    assert rows[first]["description"].startswith(f"rank 0, {first}, Python 3.")
    extension("run", "probefs.attach", plain)
    extension("run", "probefs.attachRanks", first)
    extension("pick", "probefs.attach", str(second))
    started = [configuration for what, _, configuration in extension("asked") if what == "start"]
    assert [(one["processId"], one.get("ranks")) for one in started] == [(str(plain), None), (str(first), True),
                                                                         (str(second), None)]
    assert all(one["type"] == "probefs" and one["request"] == "attach" and one["processId"] in one["name"]
               for one in started)
    assert extension("pick", "probefs.pickProcess", f"{plain}, Python") == str(plain)


def test_what_is_not_there(extension, probe, tmp_path):
    assert extension("pick", "probefs.attach", "none of them") is False  # nothing was chosen
    extension("mount", str(tmp_path))
    assert extension("rows") == []
    assert extension("pick", "probefs.pickProcess", "") is None
    asked = [words for words in extension("asked") if words[0] in ("start", "error")]
    assert len(asked) == 1 and f"No probefs is mounted on {tmp_path}" in asked[0][1]


def test_adapter(extension, tmp_path):
    """Of the setting; it is given the mount, which no option can be taken for."""
    words = extension("adapter", {})
    assert words[0] == "/adapter" and words[1][0] == "--" and os.path.ismount(words[1][1])
    assert extension("adapter", {"mount": "-x"})[1] == ["--", "-x"]
