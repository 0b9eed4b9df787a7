"""bdb_oracle.py PROGRAM: reads {"breakpoints": [LINE, ...], "commands": [WORD, ...], "once": whether they hit once}
from standard input, runs main() of the program under CPython's own debugger, and prints where it stopped, as JSON:
[what, line, function, locals, the value returned, or why it did not jump]. At each stop the next of the commands is
given, which are those of pdb; without one left: continue. As pdb's "--Call--" and "--Exception--" are no lines, the
command that led there is given again; so is it at a "--Return--" that nobody waited for."""
import bdb
import json
import runpy
import sys


class Oracle(bdb.Bdb):
    def __init__(self, commands, once):
        super().__init__()
        self.commands, self.once, self.last = list(commands), once, "continue"
        self.stops, self.begun = [], False

    def obey(self, frame):
        if self.last == "step":
            self.set_step()
        elif self.last == "next":
            self.set_next(frame)
        elif self.last == "return":
            self.set_return(frame)
        else:
            self.set_continue()

    def next_command(self, frame):
        self.last = self.commands.pop(0) if self.commands else "continue"
        if self.last.startswith("jump "):
            self.jump(frame, int(self.last[5:]))
            return self.next_command(frame)
        self.obey(frame)

    def jump(self, frame, line):
        try:
            frame.f_lineno = line
            self.stops.append(["jumped", frame.f_lineno, frame.f_code.co_name, None])
        except ValueError as error:
            self.stops.append(["refused", frame.f_lineno, frame.f_code.co_name, str(error)])

    def user_line(self, frame):
        code = frame.f_code
        if code.co_filename == bdb.__file__:
            return self.set_continue()
        if not self.begun:  # where it stops by itself
            self.begun = True
            if not self.break_here(frame):
                return self.set_continue()
            if self.once:
                self.clear_all_breaks()
        self.stops.append(["line", frame.f_lineno, code.co_name, {name: repr(value) for name, value in
                                                                  frame.f_locals.items() if name[0] != "."}])
        self.next_command(frame)

    def user_call(self, frame, _):
        if self.stop_here(frame):
            self.obey(frame)

    def user_exception(self, frame, _):
        self.obey(frame)

    def user_return(self, frame, value):
        if self.last == "return":
            self.stops.append(["return", frame.f_lineno, frame.f_code.co_name, repr(value)])
            self.next_command(frame)
        else:
            self.obey(frame)


def main():
    path = sys.argv[1]
    asked = json.loads(sys.stdin.read())
    program = runpy.run_path(path, run_name="__main__")
    oracle = Oracle(asked["commands"], asked["once"])
    for line in asked["breakpoints"]:
        why = oracle.set_break(path, line)
        assert not why, why
    try:
        oracle.runcall(program["main"])
    except (TypeError, UnboundLocalError):  # after a jump
        sys.settrace(None)
    print(json.dumps(oracle.stops))


main()
