"""Who may connect to a probefs-dap that listens."""
import os
import signal
import socket
import stat
import subprocess
import sys

import pytest

from dap import PROGRAM, Connected
from interpreters import eventually, patience

SOURCE = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin:\n    print(eval(line), flush=True)\n"
# connects, says all of that at once, and goes
ATTACKER = """
import json, socket, sys, time
where, pid, how = sys.argv[1:]
if where.isdigit():
    connection = socket.create_connection(("127.0.0.1", int(where)))
else:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(where)
code = "__import__('builtins').__dict__.update(was_here=1)"
for seq, (command, arguments) in enumerate([("initialize", {}), ("attach", {"processId": int(pid)}),
                                            ("evaluate", {"expression": code})], 1):
    body = json.dumps(dict(seq=seq, type="request", command=command, arguments=arguments)).encode()
    connection.sendall(b"Content-Length: %d\\r\\n\\r\\n%s" % (len(body), body))
print("sent", flush=True)
if how == "stays":
    time.sleep(60)
"""


class Listener:
    def __init__(self, mount, where="0"):
        if not PROGRAM.exists():
            pytest.skip("probefs-dap is not built: jansson is missing")
        self.process = subprocess.Popen([PROGRAM, "--listen", where, mount], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.where = self.process.stdout.readline().strip()
        self.port = int(self.where.rpartition(":")[2]) if where.isdigit() else None

    def said(self):
        return self.process.stderr.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(patience(10))
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def target(any_python):
    return any_python.run_source(SOURCE)


def untouched(probe, target):
    """Nobody has put an agent in, or run code."""
    assert "Agent: none" in (probe.path / str(target.pid) / "ctl").read_text()
    target.send("hasattr(__import__('builtins'), 'was_here')")
    target.expect("False")


def test_own_clients(probe, target, tmp_path):
    """On a port, or on a socket; each has a session of its own."""
    with Listener(probe.path) as listener:
        assert listener.where == f"127.0.0.1:{listener.port}"
        editors = [Connected(listener.port) for _ in range(2)]
        for editor in editors:
            editor.attach(processId=target.pid)
            assert editor.evaluate("6 * 7")["result"] == "42"
        editors[0].close()
        assert editors[1].evaluate("6 * 7")["result"] == "42"
        editors[1].close()
    path = tmp_path / "dap.sock"
    with Listener(probe.path, str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        editor = Connected(path)
        editor.attach(processId=target.pid)
        assert editor.evaluate("6 * 7")["result"] == "42"
        editor.close()


@pytest.mark.attack
@pytest.mark.parametrize("how", ["stays", "goes"])
def test_another_user(probe, target, nobody, tmp_path, how):
    """Is refused; also one that has closed its end before anybody looks whose it was."""
    with Listener(probe.path) as listener:
        listener.process.send_signal(signal.SIGSTOP)
        attacker = subprocess.Popen(["/usr/bin/python3", "-c", ATTACKER, str(listener.port), str(target.pid), how],
                                    user=nobody, stdout=subprocess.PIPE, text=True)
        assert attacker.stdout.readline() == "sent\n"
        if how == "goes":
            attacker.wait(patience(30))
        listener.process.send_signal(signal.SIGCONT)
        assert "refused" in listener.said()
        attacker.kill()
        attacker.wait(patience(30))
        attacker.stdout.close()
        untouched(probe, target)
    path = tmp_path / "dap.sock"
    with Listener(probe.path, str(path)) as listener:
        for directory in (tmp_path, *tmp_path.parents):
            if directory.stat().st_uid == os.geteuid() and "pytest" in str(directory):
                directory.chmod(0o755)
        path.chmod(0o666)  # even then
        subprocess.run(["/usr/bin/python3", "-c", ATTACKER, path, str(target.pid), "goes"], user=nobody,
                       capture_output=True, check=False)
        assert "refused" in listener.said()
        untouched(probe, target)


@pytest.mark.attack
def test_browser(probe, target):
    """What a page has the user's own browser send is no message, though its body would be one."""
    body = f'{{"seq": 1, "type": "request", "command": "attach", "arguments": {{"processId": {target.pid}}}}}'.encode()
    with Listener(probe.path) as listener, socket.create_connection(("127.0.0.1", listener.port)) as browser:
        browser.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
                        b"%s" % (len(body), body))
        browser.settimeout(patience(30))
        try:
            assert browser.recv(100) == b""
        except ConnectionResetError:
            pass
        untouched(probe, target)


def test_where_it_listens(probe, tmp_path):
    if not PROGRAM.exists():
        pytest.skip("probefs-dap is not built: jansson is missing")
    for where, code, words in (("99999", 2, "wants a port"), ("some", 2, "wants a port"),
                               (str(tmp_path / "none" / "s"), 1, "can't listen on")):
        run = subprocess.run([PROGRAM, "--listen", where, probe.path], capture_output=True, text=True)
        assert run.returncode == code and words in run.stderr
    assert subprocess.run([PROGRAM, "a", "b"], capture_output=True).returncode == 2
    assert b"--listen" in subprocess.run([PROGRAM, "--help"], capture_output=True).stdout
    with Listener(probe.path) as first:
        run = subprocess.run([PROGRAM, "--listen", str(first.port), probe.path], capture_output=True, text=True)
        assert run.returncode == 1 and "Choose another" in run.stderr
