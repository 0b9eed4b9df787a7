"""A thread runs code in a second interpreter; prints its native thread id there."""
import os
import sys
import threading

import oracle

try:
    import _interpreters as interpreters      # 3.13
except ImportError:
    import _xxsubinterpreters as interpreters

SOURCE = """
def second(fd):
    import os
    os.read(fd, 1)

def first(fd):
    import os
    os.write({}, b"x")
    second(fd)

first({})
"""

told, tell = os.pipe()
blocked, _keep = os.pipe()
made = interpreters.create()


def run():
    source = SOURCE.format(tell, blocked)
    if sys.version_info >= (3, 13):
        interpreters.exec(made, source)
    else:
        interpreters.run_string(made, source)


threading.Thread(target=run, name="sub", daemon=True).start()
os.read(told, 1)
oracle.park()
