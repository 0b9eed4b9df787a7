"""What probefs-dap runs in a process to complete a name, in a dict of its own each time: nothing of it stays."""
import sys

NAMES = 500


def kind_of(value):
    if isinstance(value, type):
        return "class"
    if isinstance(value, type(sys)):
        return "module"
    return "function" if callable(value) else "field"


def say(text, names):
    """JSON: [[name, kind], ...] of what may stand for the last name of a text."""
    *path, start = text.split(".")
    value, found = None, names
    if path:
        if path[0] not in names:
            found = []
        else:
            value = names[path[0]]
            for name in path[1:]:
                value = getattr(value, name)
            found = dir(value)
    rows = []
    for name in sorted(found, key=lambda name: (name.startswith("_"), name)):
        if name.isidentifier() and name.lower().startswith(start.lower()) and len(rows) < NAMES:
            try:
                rows.append(f'["{name}","{kind_of(getattr(value, name) if path else found[name])}"]')
            except Exception:
                pass
    print("[" + ",".join(rows) + "]")
