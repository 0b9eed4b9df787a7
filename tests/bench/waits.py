"""What it costs to tell who waits for whom: locks and status beside the stacks, by what many threads wait for."""
import os
import textwrap
import time

from report import show

THREADS = 20
KEPT = 0.1  # s for which what all processes have open is kept (fs/proc/descriptors.h)
LOCKS_LIMIT, STATUS_LIMIT = 2.0, 1.5  # times what the stacks take

PROGRAM = textwrap.dedent("""
    import os, socket, sys, threading

    def wait_for_lock():
        lock = threading.Lock()
        lock.acquire()
        return lock.acquire, ()

    def wait_for_pipe():
        reads, _ = os.pipe()
        return os.read, (reads, 1)

    def wait_for_socket():
        one, other = socket.socketpair()
        kept.append(other)
        return one.recv, (1,)

    def wait_for_connection():
        one = socket.create_connection(listener.getsockname())
        kept.append(listener.accept()[0])
        return one.recv, (1,)

    kept, listener = [], socket.create_server(("127.0.0.1", 0))
    for _ in range(int(sys.argv[2])):
        function, arguments = globals()["wait_for_" + sys.argv[1]]()
        threading.Thread(target=function, args=arguments, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    """)


def _read(path):
    begin = time.perf_counter()
    fd = os.open(path, os.O_RDONLY)
    while os.read(fd, 1 << 20):
        pass
    os.close(fd)
    return time.perf_counter() - begin


def measure_waits(report, probe, interpreter, args):
    print("\n== Who waits for whom, read by turns; the shortest of many")
    for kind in "lock", "pipe", "socket", "connection":
        with interpreter.run_source(PROGRAM, kind, str(THREADS), name="bench_waits.py") as target:
            took = {name: [] for name in ("backtrace", "locks", "status")}
            for _ in range(5 + args.rounds * 5):
                for name, seconds in took.items():
                    seconds.append(_read(probe.path / str(target.pid) / name))
            alone = []
            for _ in range(args.rounds):
                time.sleep(KEPT)
                alone.append(_read(probe.path / str(target.pid) / "locks"))
        stacks, locks, status = (min(seconds[5:]) for seconds in took.values())  # the first ones fill the caches
        words = f"{interpreter}, {THREADS} threads wait for a {kind}"
        report.row(f"{words}: locks", show(locks), f"{locks / stacks:.2f} x backtrace; status {show(status)}")
        report.row(f"{words}: locks alone", show(min(alone)), "with a look at what all processes of the host have open")
        if kind != "connection":  # the kernel goes through all it has room for
            report.budget(f"locks / backtrace, {kind}", locks / stacks, LOCKS_LIMIT, lambda x: f"{x:.2f} x")
        report.budget(f"status / backtrace, {kind}", status / stacks, STATUS_LIMIT, lambda x: f"{x:.2f} x")
