"""sources.py FILE...: a chain of calls, each in code compiled under the name of one FILE, the last
one innermost, as line 3 of it; then waits."""
import sys

import oracle


def call(names):
    if not names:
        oracle.park()
    code = compile("\n\ncall(names)", names[0], "exec")
    exec(code, {"call": call, "names": names[1:]})


call(sys.argv[1:])
