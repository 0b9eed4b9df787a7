"""What bdb, the machinery of pdb, does on the commands of a person: python stepper.py PROGRAM COMMAND...

The program begins to be stepped at the line that follows the one that reads from standard input. Prints one JSON list:
[line, function] of each place where it stops, and for `finish` also what is returned; then "end"."""
import bdb
import json
import os
import sys

path, commands = sys.argv[1], sys.argv[2:]
with open(path, encoding="utf-8") as file:
    source = file.read()
begin = 1 + [line.startswith("os.read(") for line in source.split("\n")].index(True) + 1


class Oracle(bdb.Bdb):
    def __init__(self):
        super().__init__()
        self.commands, self.stops, self.finishing, self.begun = list(commands), [], False, False

    def user_line(self, frame):
        if not self.begun:
            self.begun = frame.f_lineno == begin and frame.f_code.co_filename == path
        if not self.begun:
            self.set_next(frame)
            return
        self.stop(frame)

    def user_return(self, frame, value):
        if self.begun and self.finishing:
            self.stop(frame, repr(value))

    def stop(self, frame, *value):
        self.stops.append([frame.f_lineno, frame.f_code.co_name, *value])
        self.finishing = False
        command = self.commands.pop(0) if self.commands else "continue"
        if command == "step":
            self.set_step()
        elif command == "next":
            self.set_next(frame)
        elif command == "finish":
            self.finishing = True
            self.set_return(frame)
        else:
            self.begun = False
            self.set_continue()


oracle = Oracle()
sys.stdout = open(os.devnull, "w")
oracle.run(compile(source, path, "exec"), {"__name__": "__main__"})
sys.stdout = sys.__stdout__
print(json.dumps(oracle.stops))
