"""probefs-web: the files over HTTP, and who may ask for them."""
import http.client
import json
import os
import re
import socket
import stat
import subprocess

import pytest

from interpreters import eventually, patience
from web import PROGRAM, Web

PROGRAM_TEXT = """
import time
def work(secret):
    while True:
        time.sleep(0.01)
print("ready", flush=True)
work("a value")
"""


@pytest.fixture
def web(probe):
    with Web(probe.path) as started:
        yield started


@pytest.fixture
def target(any_python):
    return any_python.run_source(PROGRAM_TEXT)


def test_files(probe, web, target):
    status, headers, text = web.ask(f"{target.pid}/status")
    assert status == 200 and text.startswith(f"Pid: {target.pid}\n")
    assert headers["Cache-Control"] == "no-store" and headers["X-Content-Type-Options"] == "nosniff"
    _, _, names = web.ask(f"{target.pid}/")
    here = os.scandir(probe.path / str(target.pid))
    assert sorted(names.split()) == sorted(entry.name + "/" * entry.is_dir() for entry in here)
    status, headers, _ = web.ask(f"{target.pid}/tables/threads.csv")
    assert status == 200 and headers["Content-Type"].startswith("text/csv")
    assert web.ask("99999999/status")[0] == 404


def test_commands(web, target):
    assert web.ask(f"{target.pid}/eval", "1 + 1")[2] == "2\n"
    # a block that only its end ends
    assert web.ask(f"{target.pid}/eval", "for i in range(2):\n  print(i)")[2] == "0\n1\n"
    status, headers, text = web.ask(f"{target.pid}/eval", "1/0")
    assert status == 422 and headers["X-Probe-Errno"] == "EIO" and "ZeroDivisionError" in text
    status, _, text = web.ask(f"{target.pid}/query", "-- format: json\nSELECT pid\nFROM process")
    assert status == 200 and json.loads(text) == [{"pid": target.pid}]
    status, headers, text = web.ask(f"{target.pid}/query", "SELECT nothing FROM process;")
    assert status == 422 and headers["X-Probe-Errno"] == "EINVAL" and "nothing" in text
    assert web.ask(f"{target.pid}/breakpoints", "log nowhere.py:1\n")[0] == 200
    assert web.ask(f"{target.pid}/breakpoints?append", "log nowhere.py:2\n")[0] == 200
    assert web.ask(f"{target.pid}/breakpoints")[2].count("nowhere.py") == 2
    assert web.ask(f"{target.pid}/breakpoints", "")[0] == 200  # as : > breakpoints
    assert "nowhere.py" not in web.ask(f"{target.pid}/breakpoints")[2]
    assert web.ask(f"{target.pid}/eval", "#" * ((1 << 20) + 1))[0] == 413


def test_interrupted(web, target):
    """Whoever goes away has what runs broken off, as by Ctrl-C."""
    assert web.ask(f"{target.pid}/eval", "import __main__; __main__.turns = 0")[0] == 200
    connection = http.client.HTTPConnection(web.host, timeout=patience(60))
    code = ("import time\ntry:\n    while True:\n        turns += 1; time.sleep(0.01)\n"
            "except KeyboardInterrupt:\n    turns = 'over'")
    connection.request("POST", f"/probe/{target.pid}/eval", code, {"Authorization": f"Bearer {web.token}"})
    eventually(lambda: "turns" in web.ask(f"{target.pid}/globals/__main__")[2] and
               "turns = 0\n" not in web.ask(f"{target.pid}/globals/__main__")[2], what="the loop")
    connection.close()
    eventually(lambda: "turns = 'over'" in web.ask(f"{target.pid}/globals/__main__")[2], what="its end")


def test_events(web, target):
    connection = http.client.HTTPConnection(web.host, timeout=patience(60))
    connection.request("GET", f"/probe/{target.pid}/events", headers={"Authorization": f"Bearer {web.token}"})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream"
    assert web.ask(f"{target.pid}/eval", "import probing; probing.event('saved', n=1)")[0] == 200
    while True:
        line = answer.readline().decode()
        assert line.startswith((":", "data: ")) or line == "\n", line
        if "saved" in line:
            break
    assert json.loads(line.removeprefix("data: "))["attrs"] == {"n": 1}
    target.close()
    assert any('"exit"' in line.decode() for line in answer)  # and it ends with the process
    connection.close()


def visit(web, name):
    """A page that is open."""
    connection = http.client.HTTPConnection(web.host, timeout=patience(60))
    connection.request("GET", f"/visit/{name}", headers={"Authorization": f"Bearer {web.token}"})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.readline().startswith(b":")
    return connection


def test_visit(probe, web, target):
    """What a page sets and holds goes with it; what another one sets stays."""
    pid, directory = target.pid, probe.path / str(target.pid)
    page, other = visit(web, "page"), visit(web, "other")
    line = PROGRAM_TEXT.splitlines().index("        time.sleep(0.01)") + 1
    assert "here stop" in web.ask(f"{pid}/breakpoints?visit=page", f"here stop source.py:{line}\n")[2]
    assert web.ask(f"{pid}/breakpoints?visit=other", "here log nowhere.py:1\n")[0] == 200
    ctl = directory / "threads" / str(pid) / "ctl"
    eventually(lambda: ctl.read_text().startswith("stopped by breakpoint"), what="the stop")
    assert web.ask(f"{pid}/threads/{pid}/ctl?visit=page", "here next\n")[0] == 200
    eventually(lambda: ctl.read_text().startswith("stopped by a step"), what="the next line")  # half a second is waited
    status, headers, text = web.ask(f"{pid}/breakpoints?visit=page", "here stop nonsense\n")
    assert status == 422 and headers["X-Probe-Errno"] == "EINVAL" and "^" in text
    assert web.ask(f"{pid}/breakpoints?visit=page", "here log nowhere.py:2\n")[0] == 200  # it goes on
    assert web.ask("/visit/page", raw=True)[0] == 409 and web.ask("/visit/third", token="", raw=True)[0] == 401
    page.close()
    eventually(lambda: ctl.read_text().startswith("running"), what="that it runs")
    eventually(lambda: re.findall(r"^\d+: (.*?) +#", (directory / "breakpoints").read_text(),
                                  re.M) == ["here log nowhere.py:1"],
               what="the other page's line alone")
    assert web.ask(f"{pid}/breakpoints?visit=page", "here log nowhere.py:3\n")[0] == 410
    other.close()
    eventually(lambda: "nowhere" not in (directory / "breakpoints").read_text(), what="no line")


def test_token(web):
    assert len(web.token) == 48
    for token in "", "0" * 48, web.token[:-1], web.token + "0":
        status, _, text = web.ask("help", token=token)
        assert status == 401 and "link" in text
    assert web.ask("help", Cookie=f"token={web.token}", token="")[0] == 401
    assert web.ask("help")[0] == 200
    with Web(web.process.args[-1]) as other:
        assert other.token != web.token


def test_page_holds_no_secret(web):
    status, headers, text = web.ask("/", token="", raw=True)
    assert status == 200 and web.token not in text and "<script" in text
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert web.ask("/no-such.js", token="", raw=True)[0] == 404


@pytest.mark.attack
def test_other_sites(web, target):
    path = f"{target.pid}/eval"
    assert web.ask("help", Host="evil.example")[0] == 421  # a name that was led here
    assert web.ask("help", Host="127.0.0.1.evil.example")[0] == 421
    assert web.ask("help", Host="localhost:1")[0] == 200  # forwarded by ssh
    assert web.ask("/", token="", raw=True, Host="evil.example")[0] == 421
    assert web.ask(path, "1", Origin="http://evil.example")[0] == 403
    assert web.ask(path, "1", Origin="null")[0] == 403
    assert web.ask(path, "1", Origin=f"http://{web.host}")[0] == 200
    for site in "cross-site", "same-site":
        assert web.ask(path, "1", Sec_Fetch_Site=site)[0] == 403
    form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": "http://evil.example"}
    assert web.ask(path, "a=1", token="", **form)[0] == 403
    status, headers, _ = web.ask("help", token="")
    assert status == 401 and not any(name.startswith("Access-Control") for name in headers)


@pytest.mark.attack
def test_paths(web, target):
    for path in ("../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/", f"{target.pid}/../../etc/passwd",
                 "/etc/passwd", "./../"):
        status, _, text = web.ask(path)
        assert status in (403, 404) and "root:" not in text, path
    assert web.ask(f"{target.pid}/../help")[0] == 200  # that stays inside


def test_no_mount(tmp_path):
    if not PROGRAM.exists():
        pytest.skip("probefs-web is not built: libmicrohttpd is missing")
    run = subprocess.run([PROGRAM, "--as-root", tmp_path], capture_output=True, text=True)
    assert run.returncode == 1 and f"no probefs is mounted on {tmp_path}" in run.stderr


def test_mount_again(probe):
    """The daemon may die and come back."""
    other = probe.mount()
    with Web(other.path) as web:
        assert web.ask("help")[0] == 200
        other.kill()
        status, _, text = web.ask("help")
        assert status == 503 and "Start it: probefs" in text
        other.start()
        assert web.ask("help")[0] == 200


def test_refuses_root(probe):
    if not PROGRAM.exists():
        pytest.skip("probefs-web is not built: libmicrohttpd is missing")
    if os.geteuid() != 0:
        pytest.skip("wants root")
    run = subprocess.run([PROGRAM, probe.path], capture_output=True, text=True)
    assert run.returncode == 1 and "--as-root" in run.stderr
    assert subprocess.run([PROGRAM, "--listen", "99999", "--as-root", probe.path], capture_output=True).returncode == 1


def test_socket(probe, tmp_path):
    path = tmp_path / "web.sock"
    with Web(probe.path, listen=str(path)) as web:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        token = web.link.rpartition("=")[2]
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(f"GET /probe/help HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: "
                               f"Bearer {token}\r\n\r\n".encode())
            assert connection.makefile("rb").readline().split()[1] == b"200"
    assert not path.exists()


@pytest.mark.attack
def test_socket_of_another_user(probe, tmp_path, nobody):
    path = tmp_path / "web.sock"
    with Web(probe.path, listen=str(path)):
        for directory in (tmp_path, *tmp_path.parents):
            if directory.stat().st_uid == os.geteuid() and "pytest" in str(directory):
                directory.chmod(0o755)
        path.chmod(0o666)  # even then
        code = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
                "s.sendall(b'GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); print(s.recv(20).split()[1].decode())")
        run = subprocess.run(["/usr/bin/python3", "-c", code, path], user=nobody, group="nogroup", extra_groups=[],
                             capture_output=True, text=True)
        assert run.stdout == "403\n", run.stderr
