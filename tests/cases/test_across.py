"""contrib/across over the real clush, with a stand-in for ssh: a host is a directory, in which `here` is the mount."""
import json
import shutil
import subprocess

import pytest

from agents import start
from commands import write
from interpreters import eventually, patience
from mount import REPOSITORY
from sql import ask

RECIPES = sorted((REPOSITORY / "contrib" / "recipes").glob("*.sql"))
WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"
RAISES = "import sys; print('ready', flush=True); sys.stdin.readline(); raise ValueError('of across')"
SSH = """#!/bin/sh
for last; do host=$before before=$last; done
[ "$host" != h3 ] || { echo "no route to host" >&2; exit 255; }
cd "${0%/*}/$host" && exec sh -c "$last"
"""


@pytest.fixture
def across(tmp_path, probe):
    """h1 and h2 have the mount, h3 can't be reached, h4 has no mount."""
    if not shutil.which("clush"):
        pytest.skip("clush is not installed (Debian: clustershell)")
    ssh = tmp_path / "ssh"
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    for host in ("h1", "h2", "h4"):
        (tmp_path / host).mkdir()
    for host in ("h1", "h2"):
        (tmp_path / host / "here").symlink_to(probe.path)

    def run(hosts, *args, status=0):
        said = subprocess.run([REPOSITORY / "contrib" / "across", "-e", f"clush -O ssh_path={ssh}", "-w", hosts, "-m",
                               "here", *args], capture_output=True, text=True, timeout=patience(60),
                              stdin=subprocess.DEVNULL)
        assert said.returncode == status, said
        return said
    run.path = tmp_path
    return run


def test_query(across, any_python):
    target = any_python.run_source(WAITS)
    statement = f"SELECT pid, 'a\nb, % \"x\"' AS t, NULL AS n FROM process WHERE pid = {target.pid}"
    row = {"pid": target.pid, "t": 'a\nb, % "x"', "n": None}
    said = across("h[1-2]", "-f", "jsonl", "query", statement).stdout
    assert [json.loads(line) for line in said.splitlines()] == [row, row]
    said = across("h[1-4]", "-f", "json", "query", statement, status=1)
    assert json.loads(said.stdout) == [row, row]
    assert "h3: missing: " in said.stderr and "h4: failed: here/all/query is not there" in said.stderr
    assert "no such column: nope" in across("h1", "query", "SELECT nope", status=1).stderr


def test_backtrace(across):
    """What the hosts say is a file here: ranks of one job on two hosts."""
    for host, ranks, stacks in (("h1", "0-1", "ranks 0-1 (2): MainThread [idle]\n  #0 g\n"),
                                ("h2", "2-3",
                                 "rank 2 (1): MainThread [idle]\n  #0 f\n\nrank 3 (1): MainThread [idle]\n  #0 g\n")):
        (across.path / host / "here").unlink()
        (across.path / host / "here" / "all").mkdir(parents=True)
        (across.path / host / "here" / "all" / "backtrace").write_text(
            f"2 processes, 3 threads, 1 different stack\nJob a:1: ranks {ranks} of 5, not here: 4\n\n{stacks}")
    assert across("h[1-2]", "backtrace").stdout == (
        "2 hosts, 4 processes, 6 threads, 2 different stacks\nJob a:1: ranks 0-3 of 5, missing: 4\n\n"
        "rank 2 (1): MainThread [idle]\n  #0 f\n\nranks 0-1,3 (3): MainThread [idle]\n  #0 g\n")


@pytest.mark.python(minimum=(3, 10))
def test_write(across, any_python):
    target = start(any_python, WAITS)
    assert across("h[1-2]", "write", f"{target.pid}/eval", "6 * 7").stdout == "h1,h2 (2):\n42\n"
    assert "h1: failed: " in across("h1", "write", f"{target.pid}/eval", "1 / 0", status=1).stderr


@pytest.mark.parametrize("recipe", RECIPES, ids=[path.stem for path in RECIPES])
def test_recipe_runs(probe, any_python, recipe):
    target = start(any_python, RAISES)
    text = recipe.read_text()
    assert text.startswith("-- ") and RECIPES
    if recipe.stem == "crash":
        write(probe.path / str(target.pid) / "ctl", "on-crash record\n")
        target.send("now")
        target.process.wait()
    elif recipe.stem == "leak":
        write(probe.path / str(target.pid) / "ctl", "record process on\n")
    wanted = {"crash": target.pid, "leak": target.pid, "slow_rank": target.pid}.get(recipe.stem)

    def answers():
        rows = ask(probe.path / "all" / "query", text)
        return wanted is None or any(row["pid"] == str(wanted) for row in rows)
    eventually(answers, what=recipe.stem)
    if recipe.stem == "hang":
        assert any(row["func"] for row in ask(probe.path / "all" / "query", text))
    elif recipe.stem == "crash":
        assert any((row["name"], row["value"]) == ("ValueError", "of across")
                   for row in ask(probe.path / "all" / "query", text))
