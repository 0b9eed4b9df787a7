"""What somebody does first: building the daemon, and contrib/quickstart."""
import os
import shutil
import subprocess

import pytest

import mount as daemon
from interpreters import patience

QUICKSTART = daemon.REPOSITORY / "contrib" / "quickstart"


@pytest.fixture
def environment(tmp_path):
    """In an active virtual environment, none of whose programs is any good."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    for name in "python3", "meson", "ninja", "pkg-config", "gcc":
        (programs / name).write_text("#!/bin/sh\nexit 77\n")
        (programs / name).chmod(0o755)
    logs = tmp_path / "logs"
    logs.mkdir()
    return {**os.environ, "VIRTUAL_ENV": str(programs.parent), "PATH": f"{programs}:{os.environ['PATH']}",
            "TMPDIR": str(logs)}


def quickstart(environment, *command):
    if not shutil.which("dpkg-query"):
        pytest.skip("it wants Debian")
    if os.geteuid() != 0:
        pytest.skip("it wants root where a package is missing")
    # whatever it leaves mounted, and its daemon, end with the namespaces
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                           *(command or [QUICKSTART])], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True,
                          timeout=patience(100))


def test_daemon_alone():
    """`ninja probefs` is what the README builds."""
    if not shutil.which("ninja"):
        pytest.skip("ninja is not installed")
    said = subprocess.run(["ninja", "-C", daemon.build(), "-t", "query", "probefs"], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.split("outputs:")[0].split()[-1] == "fs/probefs"


def test_quickstart(environment):
    said = quickstart({**environment, "PROBEFS_BUILD": str(daemon.build())})
    assert said.returncode == 0 and said.stderr == "", said.stderr
    for words in "Thread ", "<module>", " accuracy ", "3 hits", "by breakpoint", "Agent: running, connected", \
            "Exit: signal 9 SIGKILL":
        assert words in said.stdout, words
    assert "--keep leaves it mounted" in said.stdout
    assert os.listdir(environment["TMPDIR"]) == []


KEPT = """
said=$TMPDIR/said
"$0" --keep >"$said"
! grep -lx probefs-web /proc/[0-9]*/comm
command=$(grep -o '/[^ ]*/probefs-web.*' "$said")
$command --listen 0 >"$said.link" & web=$!
until grep -q '^http://127.0.0.1:[0-9]*/#token=' "$said.link"; do kill -0 $web; sleep 0.1; done
kill $web
eval "$(grep -o 'fusermount3 -u .*' "$said")"
"""


def test_quickstart_that_is_kept(environment):
    """How to have it in a browser, and how to end it, is as it says; it opens no port itself."""
    if not (daemon.build() / "contrib" / "web" / "probefs-web").exists():
        pytest.skip("probefs-web is not built: libmicrohttpd is missing")
    said = quickstart({**environment, "PROBEFS_BUILD": str(daemon.build())}, "sh", "-ec", KEPT, QUICKSTART)
    assert said.returncode == 0, said.stdout + said.stderr
    assert sorted(os.listdir(environment["TMPDIR"])) == ["said", "said.link"]


def test_quickstart_that_fails(environment, tmp_path):
    """It says where the log is, and there it is."""
    daemon_that_fails = tmp_path / "build" / "fs" / "probefs"
    daemon_that_fails.parent.mkdir(parents=True)
    daemon_that_fails.write_text("#!/bin/sh\nseq 100\necho 'no luck today' >&2\nexit 3\n")
    daemon_that_fails.chmod(0o755)
    said = quickstart({**environment, "PROBEFS_BUILD": str(tmp_path / "build")})
    assert said.returncode == 1 and "no luck today" in said.stderr
    (log,) = os.listdir(environment["TMPDIR"])
    assert said.stderr.endswith(f" is in {environment['TMPDIR']}/{log}\n")
    with open(f"{environment['TMPDIR']}/{log}") as file:
        assert file.read().splitlines() == [*map(str, range(1, 101)), "no luck today"]
