"""Runs inside gdb: what gdb sees of a process, for the cases to compare with.

PROBEFS_GDB names a JSON file with "pid", "times" and "read" (a file to read while gdb holds the
process, or null); "out" in it receives, for each time, what the file said and, for each thread,
[pc, name] of every frame, innermost first, names being a symbol's or null. From one time to the next
the process runs, so that it is not held where it was.
"""
import json
import os
import time

import gdb


def frames():
    said = []
    frame = gdb.newest_frame()
    while frame is not None:
        if frame.type() in (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME):  # neither inlined nor tail calls
            text = gdb.execute(f"info symbol {frame.pc() - (len(said) > 0)}", to_string=True)
            name = None if text.startswith("No symbol") else text.split(" in section ")[0]
            said.append([frame.pc(), name and name.split(" + ")[0].strip()])
        try:
            frame = frame.older()
        except gdb.error:
            break
    return said


def threads():
    said = {}
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        said[thread.ptid[1]] = frames()
    return said


def address(name):
    """Of a function by its name, or null: names that differ may mean the same place."""
    try:
        return int(gdb.parse_and_eval(f"(unsigned long)&'{name}'"))
    except gdb.error:
        return None


def cpu_time(pid):
    """In clock ticks: utime and stime of proc(5), stat."""
    with open(f"/proc/{pid}/stat") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))


def let_run(pid):
    before = cpu_time(pid)
    gdb.execute("detach", to_string=True)
    while cpu_time(pid) == before:
        time.sleep(0.005)


def main():
    with open(os.environ["PROBEFS_GDB"]) as file:
        order = json.load(file)
    for setting in ("pagination off", "confirm off", "backtrace past-main on",
                    "backtrace past-entry on", "backtrace limit 4000", "auto-load off",
                    "print thread-events off", "debuginfod enabled off"):
        try:
            gdb.execute("set " + setting)
        except gdb.error:
            pass  # not in this gdb
    if order["root"] != "/":
        gdb.execute("set sysroot " + order["root"])
        gdb.execute("file " + os.readlink(f"/proc/{order['pid']}/exe"))
    out = []
    for _ in range(order["times"]):
        gdb.execute(f"attach {order['pid']}", to_string=True)
        seen = {"text": None, "threads": threads()}
        if order["read"]:
            with open(order["read"]) as file:
                seen["text"] = file.read()
        out.append(seen)
        if len(out) < order["times"]:
            let_run(order["pid"])
    names = {name for seen in out for t in seen["threads"].values() for _, name in t if name}
    found = {name: address(name) for name in names | set(order["names"])}
    gdb.execute("detach", to_string=True)
    with open(order["out"], "w") as file:
        json.dump({"seen": out, "addresses": found}, file)


main()
