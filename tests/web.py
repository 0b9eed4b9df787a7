"""A running probefs-web, and what it answers."""
import http.client
import subprocess

import pytest

from interpreters import patience
from mount import build

PROGRAM = build() / "contrib" / "web" / "probefs-web"


class Web:
    def __init__(self, mount, *options, listen="0"):
        if not PROGRAM.exists():
            pytest.skip("probefs-web is not built: libmicrohttpd is missing")
        self.process = subprocess.Popen([PROGRAM, "--as-root", "--listen", listen, *options, str(mount)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.link = self.process.stdout.readline().strip()
        self.url, _, self.token = self.link.partition("/#token=")
        self.host = self.url.removeprefix("http://")

    def ask(self, path, body=None, token=None, raw=False, **headers):
        """(status, headers, text); headers' names with _ for -; token: '' for none."""
        connection = http.client.HTTPConnection(self.host, timeout=patience(60))
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token != "":
            sent["Authorization"] = f"Bearer {token or self.token}"
        try:
            connection.request("GET" if body is None else "POST", path if raw else f"/probe/{path}", body, sent)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def close(self):
        self.process.terminate()
        self.process.wait(patience(10))
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
