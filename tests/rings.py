"""SQL over rings that a test fills: what the daemon makes of recorded rows, without a process that records."""
import subprocess

from interpreters import patience
from mount import build


def word(value):
    if value is None:
        return "N"
    if isinstance(value, (str, bytes)):
        return "T" + (value.encode() if isinstance(value, str) else value).hex()
    return f"R{value!r}" if isinstance(value, float) else f"I{value}"


def lines(rows):
    """[(table, values), ...] as ring_query wants them."""
    return "".join(f"{table} {' '.join(map(word, values))}\n" for table, values in rows)


def replies(rows, *statements, size=1 << 20):
    """What each statement says of rings of that size with these rows: CSV, or "error: ..."."""
    done = subprocess.run([str(build() / "tests" / "ring_query"), str(size), *statements],
                          input=lines(rows).encode(), stdout=subprocess.PIPE, check=True, timeout=patience(120))
    said = done.stdout.decode().split("\f\n")
    assert len(said) == len(statements) + 1 and not said[-1]
    return said[:-1]
