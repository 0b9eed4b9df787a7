"""spawner.py: starts programs and reads what they print."""
import subprocess

import workload


def work(index):
    number = 0
    while True:
        number += 1
        done = subprocess.run(["/bin/echo", str(number)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        workload.same((done.returncode, done.stdout, done.stderr),
                      (0, b"%d\n" % (number + workload.harmed), b""), "echo")
        workload.same(subprocess.call("exit 3", shell=True), 3, "status")
        yield


workload.run(work, workload.argument(1))
