"""What the victims of this directory share: each works in rounds and judges every result itself.

A victim is a generator function, work(index), that yields after each round; run(work, threads) does
rounds in so many threads, the main one among them, until it is told to end. The main thread looks at
the standard input between two rounds, so that a program with one thread stays one. Commands:

report  one line of JSON: {"rounds": [of each thread], "wrong": how many results were, "words": [the
        first of them], "slowest": seconds of the longest round since the last report}
rest    all threads stop between two rounds; says "resting" once they have
go      they go on; says "going"
harm    from now on the victim does itself the harm that it is made to notice; says "harmed"
stop    the threads end, then a report, then the program

The end of the input is the end of the program.
"""
import json
import os
import select
import shutil
import sys
import threading
import time

WORDS = 8  # wrong results that a report describes

harmed = False

_rounds = []
_slowest = 0.0
_wrong = 0
_words = []
_stopping = False
_resting = threading.Event()
_go = threading.Event()
_go.set()
_parked = []
_commands = select.poll()
_commands.register(0, select.POLLIN)


def wrong(words):
    """A result is not what it must be."""
    global _wrong
    _wrong += 1
    if len(_words) < WORDS:
        _words.append(words)


def same(got, wanted, what):
    if got != wanted:
        wrong(f"{what}: {str(got)[:80]} instead of {str(wanted)[:80]}")


def lasted(begin, seconds, what):
    """Something that waits since `begin` (time.monotonic) must not have ended too soon."""
    took = time.monotonic() - begin
    if took < seconds * 0.99:
        wrong(f"{what} of {seconds} s ended after {took:.4f} s")


def checks():
    """The path of the C library that this directory's checks.c becomes."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "checks.so")


def scratch():
    """A new directory for this process, in one that the tests remove."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"scratch-{os.getpid()}")
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path)
    return path


def report():
    global _slowest
    said = {"rounds": list(_rounds), "wrong": _wrong, "words": list(_words), "slowest": _slowest}
    _slowest = 0.0
    return said


def _say(line):
    print(line, flush=True)


def _command(word):
    global harmed, _stopping
    if word == "report":
        _say(json.dumps(report()))
    elif word == "rest":
        _go.clear()
        _resting.set()
        while len(_parked) < _others():
            time.sleep(0.001)
        _say("resting")
        while _resting.is_set():
            _listen(None)
    elif word == "go":
        _resting.clear()
        _go.set()
        _say("going")
    elif word == "harm":
        harmed = True
        _say("harmed")
    elif word == "stop":
        _stopping = True
        _resting.clear()
        _go.set()


def _others():
    return len(_rounds) - 1


def _listen(timeout):
    """Does what the input says, if anything: commands are short, and come in one piece."""
    if not _commands.poll(timeout):
        return
    text = os.read(0, 4096).decode()
    if not text:
        os._exit(0)
    for word in text.split():
        _command(word)


def _work(work, index):
    global _slowest
    begin = time.monotonic()
    for _ in work(index):
        _rounds[index] += 1
        now = time.monotonic()
        _slowest = max(_slowest, now - begin)
        if index == 0:
            _listen(0)
        elif _resting.is_set():
            _parked.append(index)
            _go.wait()
            _parked.remove(index)
        if _stopping:
            break
        begin = time.monotonic()


def run(work, threads=1, since=None):
    """Does rounds of work(index) in so many threads; index 0 is the main one. since: the report of
    the program that this one replaced (exec), to go on counting from."""
    _rounds[:] = since["rounds"] if since else [0] * threads
    for words in since["words"] if since else []:
        wrong(words)
    others = [threading.Thread(target=_work, args=(work, index), name=f"work-{index}", daemon=True)
              for index in range(1, threads)]
    for thread in others:
        thread.start()
    if not since:
        _say("ready")
    _work(work, 0)
    for thread in others:
        thread.join()
    _say(json.dumps(report()))


def argument(default):
    """The number of threads that the command line asks for."""
    return int(sys.argv[1]) if len(sys.argv) > 1 else default
