"""What others have written and no Debian package has. It is kept between runs, in a folder `fetched` of the cache, and
got by tests/run --full alone, where there is a network; nothing else waits for one."""
import os
import pathlib
import subprocess

import pytest

from interpreters import CACHE, patience

FULL = os.environ.get("PROBEFS_TEST_FULL") == "1"
FOLDER = os.environ.get("PROBEFS_TEST_FETCHED")


def fetched(name, whole, *commands, timeout=120):
    """The folder of that name, in which there is the file `whole` once the commands have run in it, one after the
    other; skips the case where it can't be had. timeout: seconds for each."""
    where = pathlib.Path(FOLDER or CACHE / "fetched") / name
    if (where / whole).exists():
        return where
    if not FULL:
        pytest.skip(f"{name} isn't there: tests/run --full gets it")
    try:
        where.mkdir(parents=True, exist_ok=True)
        for command in commands:
            run = subprocess.run([*map(str, command)], cwd=where, capture_output=True, text=True,
                                 timeout=patience(timeout), env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
            if run.returncode:
                said = run.stderr.strip().splitlines() or run.stdout.strip().splitlines() or ["it failed"]
                pytest.skip(f"{name}: {command[0]}: {said[-1]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{name}: {error}")
    assert (where / whole).exists(), f"{where} lacks {whole}"
    return where


def cloned(name, address, tag, whole):
    """fetched() of one version of a repository."""
    return fetched(name, whole, ["git", "init", "-q", "."],
                   ["git", "fetch", "-q", "--depth=1", address, f"refs/tags/{tag}"],
                   ["git", "checkout", "-q", "-f", "FETCH_HEAD"])


def costly():
    """Skips a case that takes minutes: tests/run --full has it, and who names the folder."""
    if not FULL and not FOLDER:
        pytest.skip("it takes minutes: tests/run --full has it, or PROBEFS_TEST_FETCHED=FOLDER")
