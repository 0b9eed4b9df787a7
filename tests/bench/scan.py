"""What it takes to group a million recorded spans, beside DuckDB and pandas on the same rows as CSV: whole
processes each, with all that they have to start and read."""
import csv
import os
import pathlib
import resource
import shutil

from commands import Commands
from peers import Library
from report import median, show, skip, timed
from sql import ask, value

ROWS = 1_000_000
RATE = 5e6  # rows/s
PART = 200_000  # rows whose CSV fits into one reply
SQL = "SELECT name, count(*) AS n, avg(duration) AS mean FROM spans GROUP BY name ORDER BY name"

OTHERS = {
    "SELECT count(*) FROM spans": "counted",
    "SELECT sum(duration) FROM spans WHERE start > (SELECT max(start) - 1 FROM spans)": "the last second, summed up",
    "SELECT id, duration FROM spans ORDER BY duration DESC LIMIT 10": "the longest ten",
    "SELECT name, max(duration) FROM spans WHERE name = 'step'": "the longest of a name",
    "SELECT median(duration) FROM spans": "median",
}


# What the others run; the CSV is their argument.
DUCKDB = f"import duckdb, sys; print(duckdb.execute({SQL.replace('FROM spans', 'FROM read_csv(?)')!r}, " \
         "sys.argv[1:]).fetchall())"
PANDAS = "import pandas, sys; print(pandas.read_csv(sys.argv[1], usecols=['name', 'duration'])" \
         ".groupby('name').duration.agg(['size', 'mean']))"
LIBRARIES = {Library("DuckDB", "duckdb", "duckdb"): DUCKDB, Library("pandas", "pandas", "pandas"): PANDAS}


def start(probe, interpreter):
    """A process with the rows in its ring."""
    shutil.copy(os.path.join(os.path.dirname(__file__), "span_rows.py"), interpreter.directory / "bench_span_rows.py")
    target = interpreter.run("bench_span_rows.py", str(ROWS))
    Commands(probe, target.pid).run("ctl", "record spans 256M\n")
    target.send("")
    assert target.readline(120) == "done"
    return target


def write_csv(query, path):
    """All rows as one file, for the others."""
    with open(path, "w", newline="") as file:
        writer = None
        for low in range(0, ROWS, PART):
            rows = ask(query, f"SELECT * FROM spans WHERE id > {low} AND id <= {low + PART}")
            writer = writer or csv.DictWriter(file, rows[0])
            if low == 0:
                writer.writeheader()
            writer.writerows(rows)


def command_of(query, sql):
    return ["sh", "-c", 'echo "$2" > "$1"; cat "$1"', "sh", str(query), sql]


def processor_time(probe):
    """Seconds that the daemon and all finished commands have computed; counted in ticks of 10 ms, mostly."""
    user, system = pathlib.Path(f"/proc/{probe.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK") + children.ru_utime + children.ru_stime


def compare(report, probe, commands, rounds):
    took = {name: [] for name in commands}
    computed = dict.fromkeys(commands, 0)
    for _ in range(rounds):  # in turns: the machine drifts
        for name, command in commands.items():
            before = processor_time(probe)
            seconds, said = timed(command)
            if seconds is None:
                skip(name, said.strip().splitlines()[-1][:120])
            else:
                took[name].append(seconds)
                computed[name] += processor_time(probe) - before
    ours = median(took["probefs"]), computed["probefs"] / len(took["probefs"])
    for name, seconds in took.items():
        if seconds:
            busy = computed[name] / len(seconds)
            report.row(f"group {ROWS:,} spans by name: {name}", show(median(seconds)),
                       f"{show(busy)} computing" if name == "probefs" else
                       f"{median(seconds) / ours[0]:.1f} x ours; {show(busy)} computing, {busy / ours[1]:.1f} x ours")
    report.budget("rows/s grouped, whole process, at least", -ROWS / ours[0], -RATE, lambda x: f"{-x / 1e6:.1f} M")
    report.row("rows/s grouped, of processor time", f"{ROWS / ours[1] / 1e6:.1f} M")


def measure_scan(report, probe, chosen, args):
    print("\n== Recording: a million rows, asked in SQL")
    # in a root without /proc there is no ring of that size
    interpreter = next((i for i in reversed(chosen)
                        if i.version >= (3, 10) and (i.root / "proc/self").exists()), None)
    if not interpreter:
        return
    with start(probe, interpreter) as target:
        query = probe.path / str(target.pid) / "query"
        assert value(query, "SELECT kept FROM tables WHERE name = 'spans'") == str(ROWS)
        commands = {"probefs": command_of(query, SQL)}
        table = pathlib.Path(interpreter.directory) / "bench_spans.csv"
        for peer, code in LIBRARIES.items() if not args.no_peers else ():
            why = peer.install()
            if why:
                skip(peer.name, why)
            else:
                commands[peer.name] = [str(peer.python), "-c", code, str(table)]
        if len(commands) > 1:
            write_csv(query, table)
        compare(report, probe, commands, args.rounds)
        for sql, words in OTHERS.items():
            took = [timed(command_of(query, sql))[0] for _ in range(args.rounds)]
            report.row(f"{ROWS:,} spans: {words}", show(median(took)), sql)
