"""Code without a file of its own, and file names that try to forge a line."""
import oracle

HOSTILE = "a;b (c:1)\nThread 1 (forged) [running]\x1b[31m\\.py"


def run(source, filename, **names):
    exec(compile(source, filename, "exec"), dict(names))


def third():
    eval("park()", {"park": oracle.park})


def second():
    run("def forged():\n    third()\n\n\nforged()\n", HOSTILE, third=third)


def first():
    run("\n" * 70000 + "second()\n", "", second=second)


exec("x = 1\ndef named():\n    first()\nnamed()\n")
