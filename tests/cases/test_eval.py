"""eval, threads/<tid>/eval and threads/<tid>/frames/<n>/eval through the mount, from a shell."""
import contextlib
import errno
import json
import os
import signal
import subprocess
import threading
import time

import pytest

from command_files import writing
from commands import Commands, failure, shell, write
from interpreters import eventually, patience
from stopping import hogs_gil

pytestmark = pytest.mark.python(minimum=(3, 10))

PROGRAM = r'''
import sys, threading

counter = 0


class Model:
    def __repr__(self):
        global counter
        counter += 1  # code that ran
        return "<Model>"


def worker(mine):
    def inside(place):
        ready.release()
        gate.acquire()
    inside("deep")


def main():
    loss, model = 0.25, Model()
    print("ready", flush=True)
    for line in sys.stdin:
        print(repr((loss, counter, line.strip())), flush=True)


gate, ready = threading.Lock(), threading.Lock()
gate.acquire(), ready.acquire()
threading.Thread(target=worker, args=(7,), name="worker", daemon=True).start()
ready.acquire()
main()
'''


def ask(path, text):
    """What a shell shows that writes a line and reads the reply."""
    result = shell('echo "$2" > "$1"; cat "$1"', path, text)
    assert result.stderr == "", result
    return result.stdout


def files(probe, target):
    return probe.path / str(target.pid)


def thread_named(probe, target, name):
    for tid in target.tids():
        if f"Name: {name}" in probe.read(target.pid, "threads", tid, "status").replace("\t", " "):
            return tid
    raise AssertionError(f"no thread {name}")


def test_the_readme(probe, python):
    """echo "print(loss)" > eval; cat eval: on a process that never heard of us."""
    target = python.run_source(PROGRAM)
    here = files(probe, target)
    assert ask(here / "eval", "print(loss)") == "0.25\n"
    assert ask(here / "eval", "loss, model") == "(0.25, <Model>)\n"
    assert ask(here / "eval", "None") == ask(here / "eval", "y = [loss * i for i in range(3)]") == ""
    assert ask(here / "eval", "y; print('text'); 'value'") == "[0.0, 0.25, 0.5]\ntext\n'value'\n"
    assert (here / "eval").read_text() == "[0.0, 0.25, 0.5]\ntext\n'value'\n"
    target.send("hello")
    target.expect("(0.25, 1, 'hello')")  # and it printed nothing else


def test_threads_and_frames(probe, python):
    target = python.run_source(PROGRAM)
    here = files(probe, target)
    thread = here / "threads" / str(thread_named(probe, target, "worker"))
    assert ask(thread / "eval", "place, mine, counter") == "('deep', 7, 0)\n"
    assert ask(thread / "frames/0/eval", "place") == "'deep'\n"
    assert ask(thread / "frames/1/eval", "mine, sorted(locals())") == "(7, ['inside', 'mine'])\n"
    assert ask(thread / "frames/1/eval", "mine += 1; [mine for _ in 'ab']") == "[8, 8]\n"
    assert "mine = 8\n" in (thread / "frames/1/locals").read_text()
    main = here / "threads" / str(target.pid)
    depth = next(depth for depth in range(5)
                 if "loss = " in (main / f"frames/{depth}/locals").read_text())
    assert ask(main / f"frames/{depth}/eval", "loss = 0.5") == ""
    target.send("hello")
    target.expect("(0.5, 0, 'hello')")
    result = shell('echo 1 > "$1"', main / "frames/3000/eval")
    assert result.returncode and "No such file" in result.stderr


def shown(said):
    """(what was printed, the values) of a reply by -- format: json."""
    printed, *values = said.split("\x1e")
    return printed, [json.loads(value) for value in values]


def test_as_json(probe, python):
    target = python.run_source(PROGRAM)
    here = files(probe, target)
    thread = here / "threads" / str(thread_named(probe, target, "worker"))
    assert shown(ask(here / "eval", "-- format: json\nprint('text'); None")) == (
        "text\n", 2 * [{"type": "NoneType", "value": "None"}])
    assert shown(ask(thread / "frames/1/eval", "-- format: json\nmine\nfor _ in 'ab': mine")) == (
        "", 3 * [{"type": "int", "value": "7"}])
    text = "\x00\n\"\\\x7f\u00e4\U0001f600\x1e"
    write(here / "eval", f"""-- format: json
class Held:
    __slots__ = "slot",
    def __repr__(self): 1 / 0
class Lone:
    def __repr__(self): return chr(0xd800) + "."
held = Held()
held.slot = {{1, }}
[{text!r}, {{"key": [[[[]]]], 7: "a" * 3000}}, held, Lone()]
""")
    value, = shown((here / "eval").read_text())[1]
    assert value["type"] == "list"
    first, mapping, odd, lone = value["children"]
    assert first == {"name": "0", "path": "[0]", "type": "str", "value": repr(text)} and lone["value"] == "\ufffd."
    nested, long = mapping["children"]
    assert (nested["name"], nested["path"], nested["children"][0]["children"]) == ("'key'", "['key']", None)
    assert (long["name"], long["path"], len(long["value"])) == ("7", "[7]", 2003) and long["value"].endswith("a...")
    assert odd["value"] == "<repr() raised ZeroDivisionError>"
    assert [(child["name"], child["path"], child["value"]) for child in odd["children"]] == [("slot", ".slot", "{1}")]
    assert odd["children"][0]["children"][0] == {"name": "0", "path": None, "type": "int", "value": "1"}
    assert len(shown(ask(here / "eval", "-- format: json\nlist(range(1000))"))[1][0]["children"]) == 100


def test_format_of_a_conversation(probe, any_python):
    """It counts for all that is written to one open file, until another one is said."""
    target = any_python.run_source(PROGRAM)
    path = files(probe, target) / "eval"
    with open(path, "r+b", buffering=0) as file:
        def said(text):
            file.write(text.encode())
            return file.read().decode()
        assert said("-- format: json\n") == ""
        for _ in range(2):
            assert shown(said("1\n")) == ("", [{"type": "int", "value": "1"}])
            assert shown(said("-- format: json\n2\n")) == ("", [{"type": "int", "value": "2"}])
        assert said("-- format: repr\n2\n") == "2\n"
        assert said("2\n") == "2\n"
    assert ask(path, "2") == "2\n"
    result = shell('echo "$2" > "$1"', path, "-- format: csv\n1")
    assert result.returncode and "Invalid argument" in result.stderr
    assert path.read_text() == "error: values are shown by -- format: repr, as at a prompt, or json\n"


def test_an_ended_thread(probe, any_python):
    """A thread may end between the look and the question."""
    target = any_python.run_source(PROGRAM)
    path = files(probe, target) / "threads" / str(thread_named(probe, target, "worker")) / "eval"
    fd = os.open(path, os.O_RDWR)
    ask(files(probe, target) / "eval", "gate.release()")
    eventually(lambda: len(target.tids()) < 4 and not path.exists(), what="the thread's end")
    assert failure(os.write, fd, b"1\n") in (errno.ESRCH, errno.EINVAL)
    assert os.read(fd, 1000).startswith(b"error: ")
    os.close(fd)


SCRIPT = '''\
def total(values):

    # a comment
    return sum(values)

for i in range(2):
    i
else:
    "äöü €"
if loss:
    print("""two
lines""")
total([1,
       2])
x = loss; x
'''
SHOWN = "0\n1\n'äöü €'\ntwo\nlines\n3\n0.25\n"


@pytest.mark.parametrize("how", [
    'echo "$2" > "$1"',
    'printf "%s" "$2" > "$1"',
    'printf "%s\\n" "$2" | while IFS= read -r line; do printf "%s\\n" "$line"; done > "$1"',
    'cat > "$1" <<END\n$2\nEND',
    'dash -c \'echo "$2" > "$1"\' dash "$1" "$2"',
    'dash -c \'cat > "$1" <<END\n$2\nEND\' dash "$1" "$2"',
    'printf "%s" "$2" | dd bs=1 of="$1" 2>/dev/null',
    'printf "%s" "$2" | dd bs=7 of="$1" 2>/dev/null',
    'printf "%s" "$2" | tee "$1" > /dev/null',
    'f=$(mktemp); printf "%s" "$2" > "$f"; cp "$f" "$1"; rm "$f"',
])
def test_however_it_is_written(probe, any_python, how):
    """Any number of write(2) calls for one text: the same is run, and is one reply."""
    target = any_python.run_source(PROGRAM)
    path = files(probe, target) / "eval"
    result = shell(how + '\ncat "$1"', path, SCRIPT)
    assert (result.stderr, result.stdout) == ("", SHOWN)


def test_statements_run_as_they_arrive(probe, any_python):
    target = any_python.run_source(PROGRAM)
    fd = os.open(files(probe, target) / "eval", os.O_RDWR)
    said = []
    for line in SCRIPT.splitlines(True):
        os.write(fd, line.encode())
        said.append(os.read(fd, 1000).decode())
    os.close(fd)
    assert "".join(said) == SHOWN
    assert [text for text in said if text] == ["0\n1\n'äöü €'\n", "two\nlines\n", "3\n", "0.25\n"]
    # an open block runs when its writer closes
    assert shell('exec 3> "$1"; echo "if 1:" >&3; echo "    \'in\'" >&3; exec 3>&-; cat "$1"',
                 files(probe, target) / "eval").stdout == "'in'\n"


def test_own_replies(probe, any_python):
    target = any_python.run_source(PROGRAM)
    path = files(probe, target) / "eval"
    result = shell('exec 3<> "$1" 4<> "$1"; echo "\'three\'" >&3; echo "\'four\'" >&4; '
                   'cat <&3; cat <&4; echo "1 + 1" >&3; cat <&3; cat <&4; cat "$1"', path)
    assert result.stdout == "'three'\n'four'\n2\n2\n"


def test_many_at_once(probe, python):
    """32 writers, some of whose code waits, each get their own reply and no other's."""
    target = python.run_source(PROGRAM)
    path = files(probe, target) / "eval"
    ask(path, "import time")
    wrong = []

    def talk(number):
        fd = os.open(path, os.O_RDWR)
        try:
            for turn in range(5):
                os.write(fd, f"for i in range(3):\n    print({number}, {turn}, i)\n"
                             f"    time.sleep(0.001)\n    [loss, {number}]\n\n{number}\n".encode())
                expected = "".join(f"{number} {turn} {i}\n[0.25, {number}]\n" for i in range(3))
                said = os.read(fd, 10000).decode()
                if said != f"{expected}{number}\n":
                    wrong.append((number, said))
        except OSError as error:
            wrong.append((number, repr(error)))
        finally:
            os.close(fd)

    threads = [threading.Thread(target=talk, args=[number]) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(60))
    assert wrong == []


@pytest.mark.parametrize("text, status, words, said", [
    ("1/0", "Input/output error", "ZeroDivisionError: division by zero",
     'Traceback (most recent call last):\n  File "<probe>", line 1, in <module>\n    1/0\n'
     'ZeroDivisionError: division by zero\n'),
    ("x = = 1", "Invalid argument", "SyntaxError: invalid syntax",
     '  File "<probe>", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n'),
    ("raise SystemExit(3)", "Input/output error", "SystemExit: 3",
     'Traceback (most recent call last):\n  File "<probe>", line 1, in <module>\n'
     '    raise SystemExit(3)\nSystemExit: 3\n'),
    ("print('before'); exit()", "Input/output error", "SystemExit",
     'before\nTraceback (most recent call last):\n'),
])
def test_errors(probe, any_python, text, status, words, said):
    """echo fails with the errno, the reply has the traceback, `errors` the words."""
    target = any_python.run_source(PROGRAM)
    path = files(probe, target) / "eval"
    for command in 'echo "$2" > "$1"', 'echo "$2" | cat > "$1"':
        result = shell("set -o pipefail; " + command, path, text)
        assert result.returncode and status in result.stderr
        assert path.read_text().startswith(said)
    assert shell('echo "$2" > "$1"', path, text, program="dash").returncode
    assert words in probe.read(target.pid, "errors")
    assert ask(path, "1 + 1") == "2\n"
    target.send("on")
    target.expect("(0.25, 0, 'on')")


def test_an_error_ends_the_text(probe, any_python):
    target = any_python.run_source(PROGRAM)
    path = files(probe, target) / "eval"
    for how in ('echo "$2" > "$1"', 'printf "%s" "$2" | cat > "$1"',
                'printf "%s" "$2" | dd bs=3 of="$1"'):
        result = shell("set -o pipefail; " + how, path, "a = 1\na\n1/0\nb = 2\nb\n")
        assert result.returncode, how
        assert path.read_text() == (
            '1\nTraceback (most recent call last):\n  File "<probe>", line 3, in <module>\n    1/0\n'
            'ZeroDivisionError: division by zero\n'), how
        assert ask(path, "'b' in globals()") == "False\n"


def test_limit(probe, any_python):
    target = any_python.run_source(PROGRAM)
    path = files(probe, target) / "eval"
    for text in "print('ä' * (20 << 20))", "['x' * 1000] * (1 << 20)":
        write(path, text + "\n")
        said = path.read_bytes()
        assert 16 << 20 <= len(said) + 1 and len(said) < (16 << 20) + 100
        assert said.endswith(b"\n[cut: one reply holds at most 16 MiB]\n")
    assert ask(path, "1 + 1") == "2\n"


@pytest.mark.long
@pytest.mark.deadline(180)
def test_nobody_gives_up_the_gil(probe, any_python):
    """ETIMEDOUT after 10 s; the code doesn't run later."""
    target = any_python.run("gil_hog.py", "20")
    eventually(lambda: hogs_gil(target.pid), what="the GIL held")
    path = files(probe, target) / "eval"
    begun = time.monotonic()
    result = shell('echo "import os; os.write(2, b\'never\')" > "$1"', path)
    assert "timed out" in result.stderr and result.returncode
    assert 9 < time.monotonic() - begun < patience(25)
    assert "GIL" in path.read_text()
    target.expect("done", 60)
    assert target.process.wait(patience(30)) == 0
    assert "never" not in target.stderr()


def test_await(probe, python):
    """On the loop that runs in the main thread, as a task among the others."""
    target = python.run_source(r'''
import asyncio, sys, threading

got = []

async def main():
    global queue
    queue = asyncio.Queue()
    print("ready", flush=True)
    while len(got) < 2:
        got.append(await queue.get())
    print(got, len(asyncio.all_tasks()), flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
''')
    path = files(probe, target) / "eval"
    assert ask(path, "async def where():\n    return threading.get_ident()\n"
                     "await where() == threading.main_thread().ident") == "True\n"
    assert ask(path, "await asyncio.sleep(0.01, 'slept')") == "'slept'\n"
    assert ask(path, "await asyncio.gather(*(asyncio.sleep(0, len(got)) for _ in range(3)))") == \
        "[0, 0, 0]\n"
    assert ask(path, "print('printed', await queue.put('one'))") == "printed None\n"

    def interrupted():
        """Whether it ended while its writer waited for that; a loop that gets no processor may end it later."""
        with writing(path, "import os\nos.write(1, b'sleeps\\n') and await asyncio.sleep(1000)\n") as process:
            target.expect("sleeps")  # a write that the daemon has not read yet is only withdrawn
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=patience(30))
        said = path.read_text()
        assert "KeyboardInterrupt" in said or "it was told to end, but runs on" in said
        return "KeyboardInterrupt" in said

    eventually(interrupted, what="an end by an interrupt")
    result = shell('echo "raise await asyncio.sleep(0, SystemExit(1))" > "$1"', path)
    assert "Input/output error" in result.stderr
    assert ask(path, "await queue.put('two')") == ""
    target.expect("['one', 'two'] 1")


HOOKED = r'''
import builtins, io, json, sys, threading

seen = {"display": [], "except": [], "trace": set(), "profile": set(), "audit": 0, "unraisable": []}
real = sys.stdout


class Out:
    """A program's own sys.stdout: the least that print() needs."""
    def __init__(self):
        self.text = ""
    def write(self, text):
        self.text += text
    def flush(self):
        pass


def trace(frame, event, arg):
    seen["trace"].add(frame.f_code.co_filename)
    return trace


def audit(event, arguments):
    seen["audit"] += 1


sys.displayhook = seen["display"].append
sys.excepthook = lambda *problem: seen["except"].append(repr(problem))
sys.unraisablehook = lambda problem: seen["unraisable"].append(repr(problem))
threading.excepthook = lambda problem: seen["except"].append(repr(problem))
sys.addaudithook(audit)
out, err = sys.stdout, sys.stderr = Out(), Out()
builtins._ = "mine"
threading.settrace(trace)
threading.setprofile(trace)
sys.settrace(trace)


def work():
    before = dict(sys.modules)
    real.write("ready\n")
    real.flush()
    count = 0
    for line in sys.stdin:
        count += 1
        print("line", count)
    return before

before = work()
sys.settrace(None)
print(json.dumps({
    "same": [sys.stdout is out, sys.stderr is err, builtins._ == "mine", sys.__stdout__ is real,
             sys.gettrace() is None, threading._trace_hook is trace],
    "out": out.text, "err": err.text, "display": seen["display"], "except": seen["except"],
    "unraisable": seen["unraisable"], "files": sorted(seen["trace"]), "audit": seen["audit"] > 0,
    "threads": [thread.name for thread in threading.enumerate()],
    "last": hasattr(sys, "last_value"),
}), file=real, flush=True)
'''


def test_the_program_is_undisturbed(probe, python):
    """Its hooks, streams and trace functions see nothing of what is evaluated, and stay."""
    target = python.run_source(HOOKED)
    path = files(probe, target) / "eval"
    assert ask(path, "5; print('mine'); sys.stderr.write('err\\n')") == "5\nmine\nerr\n4\n"
    for text in "1/0", "x = = 1", "raise SystemExit":
        assert shell('echo "$2" > "$1"', path, text).returncode
    assert ask(path, "[count for _ in (1,)], isinstance(sys.stdout, Out), sys.stdout.text") == \
        "([0], True, '')\n"
    for _ in range(20):
        target.send("line")
        ask(path, "print(count)")
    target.stdin.close()
    said = json.loads(target.readline())
    files_seen = said.pop("files")
    assert not [name for name in files_seen if "probe" in os.path.basename(name)], files_seen
    assert said == {
        "same": [True] * 6, "out": "".join(f"line {n}\n" for n in range(1, 21)), "err": "",
        "display": [], "except": [], "unraisable": [], "audit": True, "threads": ["MainThread"], "last": False}
    assert target.process.wait(patience(30)) == 0


def test_locals_stay_passive(probe, python):
    """With an agent too, reading runs no code: only eval does."""
    target = python.run_source(PROGRAM)
    here = files(probe, target)
    assert ask(here / "eval", "counter") == "0\n"
    for _ in range(20):
        subprocess.run(["grep", "-r", "model", str(here / "threads")], stdout=subprocess.DEVNULL,
                       check=True, timeout=patience(60))
    assert ask(here / "eval", "counter") == "0\n"
    assert ask(here / "eval", "model; counter") == "<Model>\n1\n"


@pytest.mark.python(free_threaded=True)
@pytest.mark.long
def test_prints_while_others_print(probe, python):
    """sys.stdout changes hands while other threads are in the middle of printing to it."""
    target = python.run_source(r'''
import sys, threading

def chatter():
    while not stop.is_set():
        print("a", "b", "c", file=None, flush=True)
        sys.stderr.write("e\n")

stop = threading.Event()
threads = [threading.Thread(target=chatter) for _ in range(3)]
sys.stdout, real = open("/dev/null", "w"), sys.stdout
sys.stderr = open("/dev/null", "w")
sys.setswitchinterval(1e-5)
for thread in threads:
    thread.start()
print("ready", file=real, flush=True)
sys.stdin.readline()
stop.set()
for thread in threads:
    thread.join()
print("well", file=real, flush=True)
''')
    path = files(probe, target) / "eval"
    fd = os.open(path, os.O_RDWR)
    for number in range(150):
        os.write(fd, f"print({number})\n".encode())
        assert os.read(fd, 100) == f"{number}\n".encode()
        if number % 50 == 25:
            write(path.parent / "ctl", "detach\n")
    os.close(fd)
    target.send("")
    target.expect("well")
    assert target.process.wait(patience(30)) == 0


# reads lines and executes them, and needs nothing that could be taken away
STRIPPED = """
import builtins, os, sys, tempfile
write, flush = sys.stdout.write, sys.stdout.flush
write("ready\\n")
flush()
for line in sys.stdin:
    exec(line)
    write("done\\n")
    flush()
"""


@pytest.mark.parametrize("what", ["del builtins.print", "sys.path[:] = []", "sys.setrecursionlimit(30)",
                                  "os.chroot(tempfile.mkdtemp())"])
def test_stripped_program(probe, python, what):
    """It works in a program that lacks what Python code may count on, and says what that code comes to."""
    if "chroot" in what and os.getuid():
        pytest.skip("only root may")
    target = python.run_source(STRIPPED)
    target.send(what)
    target.expect("done")
    commands = Commands(probe, target.pid)
    assert commands.eval("1 + 1") == "2\n"
    for _ in range(2):
        number, words = commands.refused("eval", "raise KeyError('x')\n")
        assert number == errno.EIO
        assert words == 'Traceback (most recent call last):\n  File "<probe>", line 1, in <module>\n' \
                        "    raise KeyError('x')\nKeyError: 'x'\n"
    if "limit" in what:
        assert commands.eval("__import__('sys').getrecursionlimit()") == "30\n"


@pytest.mark.python(free_threaded=True)
def test_raised_interrupt(probe, python):
    """What the code raises is the code's, KeyboardInterrupt too."""
    commands = Commands(probe, python.run_source(STRIPPED).pid)
    for raised in "KeyboardInterrupt", "SystemExit", "GeneratorExit":
        number, words = commands.refused("eval", f"raise {raised}\n")
        assert number == errno.EIO and words.endswith(f"    raise {raised}\n{raised}\n")
    assert commands.eval("1 + 1") == "2\n"


FAILING = """total = 1
def half(x):
    return x / 0

for i in range(3):
    total += i

half(total)
"""


@pytest.mark.python(free_threaded=True)
@pytest.mark.parametrize("how", ["at once", "by line"])
def test_lines_of_a_script(probe, python, how):
    """A traceback has the lines of the whole text, however it is cut into writes."""
    here = Commands(probe, python.run_source(STRIPPED).pid).directory
    fd = os.open(here / "eval", os.O_RDWR)
    try:
        parts = FAILING.splitlines(True) if how == "by line" else [FAILING]
        for part in parts[:-1]:
            os.write(fd, part.encode())
        assert failure(os.write, fd, parts[-1].encode()) == errno.EIO
        said = os.read(fd, 1 << 16).decode()
        assert 'File "<probe>", line 8, in <module>\n    half(total)\n' in said
        assert 'File "<probe>", line 3, in half\n' in said
        assert how == "by line" or "line 3, in half\n    return x / 0\n" in said
        assert failure(os.write, fd, b"\n1 +\n") == errno.EINVAL  # once its reply was read, a text is over
        assert os.read(fd, 1 << 16).decode().startswith('  File "<probe>", line 2\n    1 +\n')
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)


@pytest.mark.long
def test_waits_for_more_than_the_gil(probe, python):
    """Why an evaluation didn't begin in time is what really held it up."""
    (python.directory / "slow").mkdir(exist_ok=True)
    (python.directory / "slow" / "threading.py").write_text("import time\ntime.sleep(120)\n")
    begin = "import sys; sys.modules.pop('threading', None); sys.path.insert(0, sys.argv[1])\n"
    target = python.run_source(begin + STRIPPED.replace(", tempfile", ""), str(python.path("slow")), name="slow.py")
    number, words = Commands(probe, target.pid).refused("eval", "1\n")
    assert number == errno.ETIMEDOUT
    assert "the agent was not ready" in words and "threading.py:2)" in words and "GIL was not" not in words
    target.close()
