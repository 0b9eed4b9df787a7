"""What the text of backtrace and stacks.folded says, for the cases to compare."""
import dataclasses
import re

# how long a thread or a task has stood where it stands
STANDS = re.compile(r"(?:seen (?:on this line|in this function|here) )?for (?:at least )?\d+\.\d s")
THREAD = re.compile(r"Thread (\d+) \((.*)\) \[((?:[^\[\]]|\[[^\[\]]*\])*?)(?:, (%s))?\]$" % STANDS.pattern)
FRAME = re.compile(r"  #(\d+) +(.*?) \((.*):(\d+|\?)\)$")
NATIVE = re.compile(r"  #(\d+) +(.*) \((.*)\) \[native\]$")
UNREADABLE = re.compile(r"  #(\d+) +\?\? \((unreadable: .*)\)$")
CUT = re.compile(r"  .*\b(\d+) frames\b")


@dataclasses.dataclass
class Thread:
    tid: int
    name: str
    state: list         # the words in brackets, but for how long
    stands: str         # for how long it stands there, in words; "": not said
    frames: list        # (function, file, line) of its Python frames, innermost first
    native: list        # (index among all lines, function, place)
    lines: list         # every line, in order
    unreadable: list    # why, for each Python frame that could not be read
    native_end: list    # why native frames are missing
    cut: int = 0        # frames left out


@dataclasses.dataclass
class Backtrace:
    command: str
    version: str
    count: int          # of threads, as the heading says
    gil: str            # the rest of the heading
    threads: dict       # tid -> Thread, in order; below 0 for those without


def escape(text):
    """A target's text as every file shows it (fs/base/text.h)."""
    names = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return "".join(names.get(c) or (c if c.isprintable() or ord(c) > 0x9F else f"\\x{ord(c):02x}")
                   for c in text)


def parse_backtrace(text, pid):
    """Every line must be one that the format knows."""
    assert text.endswith("\n")
    head, version, blank, *rest = text[:-1].split("\n")
    assert head.startswith(f"Process {pid}: ") and blank == "", text[:500]
    said = re.fullmatch(r"Python (\d+\.\d+(?:\.\d+\w*)?), (\d+) threads?"
                        r"(?: and (\d+) without Python)?, (.*)", version)
    assert said, version
    threads, current = {}, None
    for line in rest:
        new = THREAD.match(line)
        if new:
            current = Thread(int(new[1]), new[2], new[3].split(", "), new[4] or "", [], [], [], [], [])
            # 0: a thread that the kernel has no longer and the interpreter has still
            assert current.tid not in threads or current.tid == 0, f"thread {current.tid} twice"
            threads[current.tid or -len(threads) - 1] = current
        elif line:
            assert current is not None, line
            current.lines.append(line)
            native, unreadable = NATIVE.match(line), UNREADABLE.match(line)
            frame, cut = FRAME.match(line), CUT.match(line)
            if native:
                current.native.append((len(current.lines) - 1, native[2], native[3]))
            elif unreadable:
                end = "native frames" in unreadable[2]
                (current.native_end if end else current.unreadable).append(unreadable[2])
            elif frame:
                number = int(frame[4]) if frame[4] != "?" else None
                current.frames.append((frame[2], frame[3], number))
            elif cut:
                current.cut += int(cut[1])
            else:
                raise AssertionError(f"not a frame: {line!r}")
    return Backtrace(head.split(": ", 1)[1], said[1], int(said[2]) + int(said[3] or 0), said[4], threads)


def parse_folded(text):
    """[([frame, ...] from the root, count), ...]"""
    stacks = []
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        assert count.isdigit() and int(count) > 0, line
        stacks.append((frames.split(";"), int(count)))
    return stacks
