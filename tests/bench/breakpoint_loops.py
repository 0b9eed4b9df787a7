"""breakpoint_loops.py [none | settrace | pdb | debugpy [DIRECTORY]]: loops to set breakpoints in, and the ways to have
some that need no probefs. Commands, one a line: "set MARK [CONDITION]" and "log MARK" (settrace and pdb only), "clear",
"functions COUNT", "run LOOP COUNT", which prints the nanoseconds that an iteration took, by the clock and of the
processor, "address", of what stored() writes. debugpy prints the port on which it listens."""
import array
import io
import sys
import time

clock, worked = time.perf_counter_ns, time.thread_time_ns
cells = array.array("q", [0] * 16)
watched = 0
beside = 0


def looped(count):
    total = 0
    begin = clock(), worked()
    for i in range(count):
        if i < 0:
            total = 0  # mark: unhit
        total += i & 7
    return begin, (clock(), worked())


def elsewhere():
    return 0  # mark: elsewhere


def reached(count):
    total = 0
    begin = clock(), worked()
    for i in range(count):
        total += i & 7  # mark: hit
    return begin, (clock(), worked())


def stored(count):
    begin = clock(), worked()
    for i in range(count):
        cells[3] = i
    return begin, (clock(), worked())


def assigned(count):
    global watched
    begin = clock(), worked()
    for i in range(count):
        watched = i
    return begin, (clock(), worked())


def assigned_beside(count):
    global beside
    begin = clock(), worked()
    for i in range(count):
        beside = i
    return begin, (clock(), worked())


def line_of(mark):
    with open(__file__) as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# mark: {mark}"))


class Nothing:
    def set(self, mark, condition, captures):
        raise NotImplementedError

    def run(self, loop, count):
        return loop(count)


class Settrace(Nothing):
    """What one writes by oneself: lines are looked at in the function that has the breakpoint."""

    def __init__(self):
        self.kept = []

    def set(self, mark, condition, captures):
        wanted = line_of(mark)
        name = {"unhit": "looped", "elsewhere": "elsewhere", "hit": "reached"}[mark]
        condition = condition and compile(condition, "condition", "eval")
        captures = [compile(capture, "capture", "eval") for capture in captures]

        def line(frame, event, _):
            if event == "line" and frame.f_lineno == wanted:
                if not condition or eval(condition, frame.f_globals, frame.f_locals):
                    self.kept[:] = [time.time(), *(repr(eval(capture, frame.f_globals, frame.f_locals))
                                                   for capture in captures)]
            return line

        sys.settrace(lambda frame, event, _: line if frame.f_code.co_name == name else None)

    def clear(self):
        sys.settrace(None)


class Pdb(Nothing):
    def __init__(self):
        import pdb
        options = {"backend": "monitoring"} if sys.version_info >= (3, 14) else {}
        self.pdb = pdb.Pdb(stdin=io.StringIO(), stdout=io.StringIO(), nosigint=True, readrc=False, **options)
        self.pdb.use_rawinput = False
        self.pdb.curframe = None  # which `commands` looks at before the first stop
        self.set_any = False

    def set(self, mark, condition, captures):
        why = self.pdb.set_break(__file__, line_of(mark), cond=condition or None)
        assert not why, why
        number = self.pdb.get_breaks(__file__, line_of(mark))[0].number
        if captures:
            self._type("silent", *(f"p {capture}" for capture in captures), "continue")
            self.pdb.onecmd(f"commands {number}")
        self.set_any = True

    def clear(self):
        self.pdb.clear_all_breaks()
        self.pdb.commands.clear()
        self.set_any = False

    def _type(self, *lines):
        self.pdb.stdin.seek(0)
        self.pdb.stdin.truncate()
        self.pdb.stdin.write("\n".join([*lines, ""]))
        self.pdb.stdin.seek(0)

    def run(self, loop, count):
        if not self.set_any:
            return loop(count)
        self._type("continue", "continue")
        self.pdb.stdout.seek(0)
        self.pdb.stdout.truncate()
        try:
            return self.pdb.runcall(loop, count)
        finally:
            sys.settrace(None)


def listen(directory=""):
    if directory:
        sys.path.insert(0, directory)
    import debugpy
    print(debugpy.listen(("127.0.0.1", 0))[1], flush=True)
    return Nothing()


def make_functions(count):
    """In modules of a thousand."""
    import types
    for first in range(0, count, 1000):
        module = types.ModuleType(f"many{first}")
        source = "\n".join(f"def f{number}(x):\n    y = x + 1\n    return y" for number in range(first, first + 1000))
        exec(compile(source, f"/nowhere/many{first}.py", "exec"), module.__dict__)
        sys.modules[module.__name__] = module


def main():
    kind = sys.argv[1] if len(sys.argv) > 1 else "none"
    print("ready", flush=True)
    tool = listen(*sys.argv[2:]) if kind == "debugpy" else {"none": Nothing, "settrace": Settrace, "pdb": Pdb}[kind]()
    for line in sys.stdin:
        command, *words = line.split(None, 2)
        said = "done"
        if command == "set":
            tool.set(words[0], words[1].strip() if len(words) > 1 else "", [])
        elif command == "log":
            tool.set(words[0], "", ["i", "total"])
        elif command == "clear":
            tool.clear()
        elif command == "functions":
            make_functions(int(words[0]))
        elif command == "address":
            said = hex(cells.buffer_info()[0] + 3 * cells.itemsize)
        elif command == "run":
            count = int(words[1])
            begin, end = tool.run(globals()[words[0]], count)
            said = f"{(end[0] - begin[0]) / count} {(end[1] - begin[1]) / count}"
        print(said, flush=True)


main()
