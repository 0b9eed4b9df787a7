"""uWSGI, whose worker has the GIL while it waits for a request unless it is started with --enable-threads."""
import os
import socket
import subprocess

import pytest

import builds
from commands import Commands
from interpreters import eventually, interpreters, patience
from servers import UNPACKED, program
from sql import reply

LIBRARIES = ":".join(str(UNPACKED / folder / "x86_64-linux-gnu") for folder in ("usr/lib", "lib"))
APPLICATION = """
import os

answer = 42

def inner(number):
    doubled = number * 2
    with open(os.environ["GATE"]) as gate:
        return gate.read()

def application(environ, start_response):
    start_response("200 OK", [])
    return [inner(21).encode()]
"""


class Server:
    """A worker, and the one request at a time that waits in it until it is let go."""

    def __init__(self, probe, directory, *options):
        debian = next((i for i in interpreters() if i.source == "debian"), None)
        if not debian:
            pytest.skip("its plugin is for Debian's own CPython")
        self.version, self.gate, self.socket = debian.version, directory / "gate", directory / "socket"
        (directory / "app.py").write_text(APPLICATION)
        os.mkfifo(self.gate)
        plugin = f"python{self.version[0]}{self.version[1]}"
        self.process = subprocess.Popen(
            [program("uwsgi-core"), "--plugin-dir", UNPACKED / "usr/lib/uwsgi/plugins", "--plugin", plugin,
             "--http-socket", self.socket, "--wsgi-file", "app.py", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory,
            env={**os.environ, "LD_LIBRARY_PATH": LIBRARIES, "GATE": str(self.gate)})
        self.commands = Commands(probe, self.process.pid)

    def ask(self):
        """Begins a request, which waits."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(patience(60))
        client.connect(str(self.socket))
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        self.waits_in("inner")
        return client

    def waits_in(self, function):
        directory = self.commands.directory
        eventually(lambda: f"  {function} (" in (directory / "backtrace").read_text(), what=f"who waits in {function}")

    def let_go(self, client):
        self.gate.write_text("hello")
        with client, client.makefile("rb") as answer:
            assert answer.read().endswith(b"hello")

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(params=[[], ["--enable-threads"]], ids=["plain", "threads"])
def server(request, probe, tmp_path):
    server = Server(probe, tmp_path, *request.param)
    server.threads = bool(request.param)
    yield server
    server.end()


def test_uwsgi(server):
    commands = server.commands
    eventually(server.socket.exists, what="its socket")
    server.waits_in("event_queue_wait")
    assert commands.eval("6 * 7") == "42\n"  # lent by who keeps it
    client = server.ask()
    text = (commands.directory / "backtrace").read_text()
    assert "  inner (app.py:8)\n" in text and "  application (app.py:13)\n" in text, text
    frames = commands.directory / "threads" / str(server.process.pid) / "frames"
    assert any("number = 21\ndoubled = 42\n" in (frame / "locals").read_text() for frame in frames.iterdir())
    assert commands.eval("6 * 7") == "42\n"
    assert "# armed" in commands.run("breakpoints", "log app.py:8 {doubled}\n")
    server.let_go(client)
    assert commands.eval("1") == "1\n"
    server.let_go(server.ask())
    query = "SELECT DISTINCT func, lineno, captured->>'doubled' AS doubled FROM hits WHERE hit\n"
    eventually(lambda: reply(commands.directory / "query", query) == "func,lineno,doubled\ninner,8,42\n",
               what="a hit in the next request")
    client = server.ask()
    commands.detach()
    assert commands.state() == "none", commands.status()
    server.let_go(client)
    server.waits_in("event_queue_wait")
    builds.note("uWSGI --enable-threads" if server.threads else "uWSGI", server.version, look="yes", write="yes",
                breakpoints="yes")
