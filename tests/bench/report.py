"""What the parts of the benchmark share: medians, what was left out and why, and the report."""
import statistics
import subprocess
import time

skipped = []


def skip(what, why):
    line = f"{what}: {why}"
    if line not in skipped:
        skipped.append(line)


def median(values):
    return statistics.median(values) if values else None


def timed(command, timeout=60, **options):
    """Seconds that a whole command takes, and what it printed; None where it fails."""
    start = time.perf_counter()
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    took = time.perf_counter() - start
    return (took if done.returncode == 0 else None), (done.stdout + done.stderr).decode(
        errors="replace")


def show(seconds):
    if seconds is None:
        return "-"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


class Report:
    def __init__(self):
        self.rows = []      # (what, measured, unit-aware text)
        self.budgets = []   # (what, measured, budget, held)
        self.whole = {}     # interpreter -> threads -> tool -> median seconds

    def row(self, *cells):
        self.rows.append(cells)
        print(f"{cells[0]:<58} {cells[1]:>10}  {cells[2] if len(cells) > 2 else ''}", flush=True)

    def budget(self, what, measured, limit, form=show):
        self.budgets.append((what, form(measured), form(limit), measured <= limit))

    def print_budgets(self):
        print("\n== Budgets of the design")
        for what, measured, limit, held in self.budgets:
            print(f"{what:<58} {measured:>10}  budget {limit:>8}  "
                  f"{'held' if held else 'MISSED'}")
