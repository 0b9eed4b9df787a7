"""Servers that cases run: tests/run unpacks them from Debian's packages, since an installed one would be started."""
import shutil
import socket

import pytest

from interpreters import CACHE

UNPACKED = CACHE / "servers"


def program(name):
    """Its path."""
    places = [UNPACKED / "usr" / folder for folder in ("bin", "sbin")]
    found = shutil.which(name, path=":".join(map(str, [*places, "/usr/bin", "/usr/sbin"])))
    if not found:
        pytest.skip(f"{name} is not there (tests/run unpacks it)")
    return found


def free_port():
    """One of 127.0.0.1 that nobody listens at now."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]
