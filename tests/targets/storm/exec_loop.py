"""exec_loop.py: after some rounds it replaces itself by itself, and goes on counting."""
import json
import os
import sys
import time

import workload


def work(index):
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        blocks = [bytes([i]) * (700 + i) for i in range(50)]
        workload.same(sum(map(len, blocks)), 50 * 700 + 49 * 25 + workload.harmed, "sum")
        yield
    os.execv(sys.executable, [sys.executable, os.path.abspath(__file__),
                              json.dumps(dict(workload.report(), harmed=workload.harmed))])


said = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
workload.harmed = said.get("harmed", False)
workload.run(work, since=said)
