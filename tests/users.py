"""Commands of a second user, and what they were refused with."""
import os
import pwd
import subprocess

from interpreters import patience


def run_as(user, *command, under=(), stdin=None):
    """A command with all the ids of a user and no capability; under: more options of setpriv."""
    entry = pwd.getpwnam(user)
    return subprocess.run(
        ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups", *under, *map(str, command)],
        capture_output=True, text=True, timeout=patience(60), input=stdin,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"})


def answer(result):
    """None when a command went well, else the errno it named."""
    if result.returncode == 0:
        return None
    words = result.stderr.strip().rpartition(": ")[2]
    return next(number for number in range(1, 134) if os.strerror(number) == words)
