"""legal.py [THREADS]: threads walk up and down a tree of functions. The name of each function
spells out its only legal caller (n_0_1 is called by n_0 alone), and in each function every call
stands on a line of its own, so that one look at a stack tells whether it ever existed."""
import sys

BRANCHES, DEPTH = 2, 7  # 255 functions, stacks of up to 8 of them
FILE = "legal_tree.py"


def tree():
    """The source, and {(caller, callee): line of the call}."""
    lines, calls = [], {}

    def add(name, depth):
        lines.append(f"def {name}(x):")
        for branch in range(BRANCHES if depth else 0):
            lines.append(f"    x = {name}_{branch}(x)")
            calls[name, f"{name}_{branch}"] = len(lines)
        lines.append("    return x + 1")
        for branch in range(BRANCHES if depth else 0):
            add(f"{name}_{branch}", depth - 1)

    add("n", DEPTH)
    return "\n".join(lines) + "\n", calls


def wrong(frames, calls):
    """Why a stack of (function, file, line), innermost first, can't have existed; None if it can.
    Only the part inside the tree is judged."""
    inside = [(function, line) for function, file, line in frames if file.endswith(FILE)]
    if inside and inside[-1][0] != "n":
        return f"it begins with {inside[-1][0]}"
    for (callee, _), (caller, line) in zip(inside, inside[1:]):
        if (caller, callee) not in calls:
            return f"{caller} doesn't call {callee}"
        if calls[caller, callee] != line:
            return f"{caller} calls {callee} on line {calls[caller, callee]}, not {line}"
    if any(file.endswith(FILE) for _, file, _ in frames) and \
            not any(function == "walk" for function, _, _ in frames):
        return "nobody calls n"
    return None


def walk(n):
    while True:
        n(0)


def main(threads):
    import threading

    import oracle
    names = {}
    exec(compile(tree()[0], FILE, "exec"), names)
    oracle.ready()
    for i in range(threads - 1):
        threading.Thread(target=walk, args=(names["n"],), name=f"walker-{i}", daemon=True).start()
    walk(names["n"])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
