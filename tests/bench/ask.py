"""What asking in SQL costs."""
import os
import time

from report import median, show, timed

DEPTH = 30
STATEMENTS = {
    "SELECT 1": "nothing of the target",
    "SELECT func, file, lineno FROM backtrace WHERE depth = 0": "top frames",
    "SELECT func, file, lineno FROM backtrace WHERE frame_type = 'Python'": "Python frames",
    "SELECT * FROM backtrace": "all frames",
    "SELECT * FROM threads": "threads",
    "SELECT name FROM locals": "names",
    "SELECT * FROM locals": "names, types, values",
    "SELECT func, count(*) FROM backtrace JOIN locals USING (tid, depth) GROUP BY 1": "both, joined",
}


def opened(path, rounds, sql=None):
    """Median seconds of open + write, if there is something to ask, + read + close."""
    took = []
    for _ in range(rounds):
        begin = time.perf_counter()
        fd = os.open(path, os.O_RDWR if sql else os.O_RDONLY)
        if sql:
            os.write(fd, sql.encode())
        while os.read(fd, 1 << 20):
            pass
        os.close(fd)
        took.append(time.perf_counter() - begin)
    return median(took)


def measure_sql(report, probe, chosen, args, start):
    print("\n== SQL (idle target)")
    for interpreter in chosen:
        with start(interpreter, 10, DEPTH) as target:
            here = probe.path / str(target.pid)
            command = ["cat", str(here / "tables" / "backtrace.csv")]
            timed(command)
            whole = median([timed(command)[0] for _ in range(args.rounds * 2)])
            report.row(f"{interpreter}, 10 x {DEPTH}: cat tables/backtrace.csv", show(whole))
            report.budget(f"whole cat tables/backtrace.csv, 10 x {DEPTH}, {interpreter}", whole, 3e-3)
            for name in "threads", "locals", "modules":
                path = here / "tables" / f"{name}.csv"
                opened(path, 10)
                report.row(f"{interpreter}, 10 x {DEPTH}: {name}.csv, open + read + close",
                           show(opened(path, args.rounds * 3)))
            for sql, words in STATEMENTS.items():
                opened(here / "query", 10, sql)
                report.row(f"{interpreter}, 10 x {DEPTH}: {words}",
                           show(opened(here / "query", args.rounds * 3, sql)), sql)
