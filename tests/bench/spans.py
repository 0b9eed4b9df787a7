"""What a span costs the program that is in it, beside other ways to have one."""
import os
import pathlib
import shutil

from commands import Commands
from peers import OpenTelemetry
from report import skip

SPAN = 250e-9

WORDS = {
    "span": "with probing.span()",
    "attributes": "the same with two attributes",
    "task": "the same in a task of asyncio",
    "decorated": "a call of a decorated function",
    "event": "probing.event()",
    "lock": "with threading.Lock(), to compare",
    "contextlib": "a span by contextlib, appended to a list",
    "opentelemetry": "a span of OpenTelemetry, nowhere to go",
}


def nanoseconds(seconds):
    return f"{seconds * 1e9:.0f} ns"


def measure(probe, interpreter, directory):
    """{way: seconds}"""
    script = interpreter.directory / "bench_span_loops.py"
    shutil.copy(os.path.join(os.path.dirname(__file__), "span_loops.py"), script)
    with interpreter.run(script.name, *([directory] if directory else [])) as target:
        Commands(probe, target.pid).eval("1")
        target.send("run")
        line = target.readline(120)
        if line.startswith("skipped="):
            skip("OpenTelemetry", f"{interpreter}: {line[8:].replace('_', ' ')}")
            line = target.readline(120)
        return {name: float(seconds) for name, _, seconds in (word.partition("=") for word in line.split())}


def measure_spans(report, probe, chosen, args):
    print("\n== Recording: a span, entered and left in Python")
    peer = None if args.no_peers else OpenTelemetry()
    why = peer and peer.install()
    if why:
        skip(peer.name, why)
    for interpreter in chosen:
        if interpreter.version < (3, 10):
            continue
        usable = peer and not why and interpreter.root == pathlib.Path("/")
        took = measure(probe, interpreter, peer.directory if usable else None)
        for name, words in WORDS.items():
            if name in took:
                ratio = f"{took[name] / took['span']:.1f} x ours" if name in ("contextlib", "opentelemetry") else ""
                report.row(f"{interpreter}: {words}", nanoseconds(took[name]), ratio)
        report.budget(f"span, entered and left, {interpreter}", took["span"], SPAN, nanoseconds)
