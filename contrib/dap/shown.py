"""What probefs-dap runs in a process to show what an expression gives.

It is executed in a dict of its own each time, and nothing of it stays. What it says is JSON behind a
SEPARATOR: in front of that stands what the expression printed.
"""
SEPARATOR = "\x1e"
TEXT = 2000     # characters of one value
CHILDREN = 100  # of one value
LEVELS = 3      # of values in one another
VALUES = 1000   # in all


def quoted(text):
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join("\\ufffd" if "\ud800" <= c < "\ue000" else
                         f"\\u{ord(c):04x}" if c < " " or c in '"\\' else c for c in text) + '"'


def json(value):
    if isinstance(value, str):
        return quoted(value)
    if value is None or value is False:
        return "null" if value is None else "false"
    return "[" + ",".join(map(json, value)) + "]"


def words(value, limit=TEXT):
    try:
        text = str.__str__(repr(value))
    except Exception as error:
        return f"<repr() raised {type(error).__name__}>"
    return text if limit is None or len(text) <= limit else text[:limit] + "..."


def attributes(value):
    """What it keeps by itself: no property is asked."""
    names = [name for name in getattr(value, "__dict__", ()) if isinstance(name, str)]
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    for name in sorted(set(names)):
        try:
            yield name, "." + name, getattr(value, name)
        except Exception:
            pass


def children(value):
    """(name, what stands behind the value's expression; None: nothing does, child)"""
    if isinstance(value, dict):
        return ((words(key, 200), f"[{words(key, None)}]", child) for key, child in dict.items(value))
    if isinstance(value, (list, tuple)):
        return ((str(number), f"[{number}]", child) for number, child in enumerate(value))
    if isinstance(value, (set, frozenset)):
        return ((str(number), None, child) for number, child in enumerate(value))
    return attributes(value)


LEAVES = (int, float, complex, str, bytes, bytearray, type(None), type(json), type(len), type)


def show(value, limit=TEXT, levels=LEVELS, left=None):
    """[type, text, children]; children: [[name, path, type, text, children], ...]; None: it has none; False: they
    aren't shown.
    left: how many more values may be."""
    left = [VALUES] if left is None else left
    rows = None
    for name, path, child in () if isinstance(value, LEAVES) else children(value):
        if not levels or not left[0]:
            rows = rows or False
            break
        rows = rows or []
        if len(rows) == CHILDREN:
            break
        left[0] -= 1
        rows.append([name, path, *show(child, TEXT, levels - 1, left)])
    return [type(value).__qualname__, words(value, limit), rows]


def say(*arguments):
    print(SEPARATOR + json(show(*arguments)))
