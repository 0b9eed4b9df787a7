"""`here`: what lives as long as the file that it was written to is open, whoever had it open and however that ended."""
import errno
import re
import subprocess

import pytest

import agent_client as agent
from agents import clients, connect, ended, start  # noqa: F401, a fixture
from commands import Commands, Refused, shell
from crashing import ORDER, STOP
from debugged import Events
from interpreters import eventually, patience
from sql import ask
from stopping import done, reads_input, wait_stopped
from test_jobs import job_of

pytestmark = pytest.mark.python(minimum=(3, 10))

SOURCE = """
import sys, threading, time

def step():
    global count
    count += 1
    return count

def work():
    while working:
        step()
        time.sleep(0.001)

working, count = True, 0
thread = threading.Thread(target=work)
thread.start()
while not count:
    time.sleep(0.001)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
working = False
thread.join()
"""


# what a line says of itself before CPython 3.12
COSTS = re.compile(r", slows the functions that it is in[^\n]*")


class Shell:
    """A bash that is told what to do, and may die at any moment; $p is the process's directory."""

    def __init__(self, directory):
        self.process = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.run(f"p={directory}")

    def run(self, script):
        """What it printed; its last line says how the script ended."""
        self.process.stdin.write(f"{script}\necho \"\nended $?\"\n")
        self.process.stdin.flush()
        said = ""
        while not re.search(r"^ended \d+\n\Z", said, re.M):
            line = self.process.stdout.readline()
            assert line, "it died"
            said += line
        return COSTS.sub("", said[:said.rindex("\nended")].strip("\n"))

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        self.process.stdin.close()
        self.process.wait(patience(30))
        self.process.stdout.close()


class Program:
    def __init__(self, probe, python, env=None):
        self.probe, self.target = probe, python.run_source(SOURCE, env=env)
        self.pid = self.target.pid
        self.directory = probe.path / str(self.pid)
        self.commands = Commands(probe, self.pid)
        self.worker, = (tid for tid in self.target.tids() if tid != self.pid)
        self.shells = []

    def shell(self):
        self.shells.append(Shell(self.directory))
        return self.shells[-1]

    def line(self, text):
        return f"{self.target.path()}:{SOURCE.splitlines().index(text) + 1}"

    def set(self):
        """The set, without what is told of each line."""
        return [line.partition("  #")[0] for line in (self.directory / "breakpoints").read_text().splitlines()]

    def state(self, tid=None):
        """Without the last reply, which stays where a pause came later than its command waits."""
        said = (self.directory / "threads" / str(tid or self.worker) / "ctl").read_text()
        return said.partition("\nLastReply: ")[0]

    def held(self, tid=None):
        return eventually(lambda: self.state(tid).startswith("stopped by"), what="a stop")

    def value(self, expression):
        self.target.send(expression)
        return self.target.readline().strip()

    def is_as_before(self):
        """Nothing is set, nothing is held, and all of it runs."""
        eventually(lambda: self.set() == [], what="that nothing is set")
        eventually(lambda: self.state() == "running\n", what="that the thread runs")
        before = int(self.value("count"))
        eventually(lambda: int(self.value("count")) > before + 3, what="that it goes on")
        assert self.state() == "running\n"


@pytest.fixture
def program(probe, any_python):
    program = Program(probe, any_python)
    yield program
    for shell in program.shells:
        if shell.process.poll() is None:
            shell.kill()
    assert program.target.stderr() == ""


def test_killed(probe, python):
    """A line of a shell that is killed goes, and so does what it holds; other lines stay."""
    program = Program(probe, python)
    killed, lives = program.shell(), program.shell()
    lives.run("exec 3>>$p/breakpoints; echo 'here log work() if False' >&3; echo 'log step() if 0' >&3")
    with Events(probe, program.pid) as events:
        killed.run(f"exec 3>>$p/breakpoints; echo 'here stop {program.line('    count += 1')}' >&3")
        assert program.set() == ["1: here log work() if False", "2: log step() if 0",
                                 f"3: here stop {program.line('    count += 1')}"]
        stop = events.next("stop")
        assert stop["id"] == 3 and program.held()
        killed.kill()
        gone = events.next("continue")
        assert (gone["name"], gone["attrs"]["stop"], gone["attrs"]["id"]) == ("closed", stop["stop"], 3)
    eventually(lambda: program.set() == ["1: here log work() if False", "2: log step() if 0"])
    lives.close()
    eventually(lambda: program.set() == ["2: log step() if 0"])
    assert program.commands.run("breakpoints", "-2\n") == "-2\n"
    program.is_as_before()
    rows = ask(program.directory / "query", "SELECT count(*) AS n FROM hits WHERE stopped AND resumed IS NULL")
    assert rows == [{"n": "0"}]
    program.target.stdin.close()
    assert program.target.process.wait(patience(30)) == 0 and program.target.stderr() == ""


def test_closed_and_dup(program):
    """It is the last descriptor that counts, in whatever process."""
    one = program.shell()
    one.run("exec 3>>$p/breakpoints; echo 'here log step() x 1' >&3; sleep 1000 3>&3 & exec 3>&-")
    eventually(lambda: "# done" in (program.directory / "breakpoints").read_text())
    assert program.set() == ["1: here log step() x 1"]
    one.run("kill -9 $!; wait $!")
    program.is_as_before()


def test_closed_at_once(program):
    """`echo ... >> breakpoints` closes it: there is nothing left."""
    assert shell(f"echo 'here stop step()' >> {program.directory}/breakpoints").returncode == 0
    program.is_as_before()
    said = program.commands.run("breakpoints", "here log step() x 1\n")  # what it was told while it lived
    assert re.fullmatch(r"\d+: here log step\(\) x 1  # armed\n", COSTS.sub("", said))
    program.is_as_before()


def test_two_handles(program):
    """Each has a line of its own, with the same words; `>` and `:` leave another one's alone, and say so; -ID removes
    it."""
    one, two = program.shell(), program.shell()
    for each in one, two:
        each.run("exec 3<>$p/breakpoints")
    assert one.run("echo 'here log step() if 0' >&3; cat <&3") == "1: here log step() if 0  # armed"
    assert one.run("echo 'here log step() if 0' >&3; cat <&3") == "1: here log step() if 0  # armed"
    assert two.run("echo 'here log step() if 0' >&3; cat <&3") == "2: here log step() if 0  # armed"
    assert program.commands.run("breakpoints", "7: log work() if 0\n").startswith("7: log work() if 0  # armed")
    assert shell(f": > {program.directory}/breakpoints").returncode == 0
    assert program.set() == ["1: here log step() if 0", "2: here log step() if 0"]
    set_it = ("import os, sys; f = os.open(sys.argv[1], os.O_RDWR | os.O_TRUNC); "
              "os.write(f, b'log work() if 0\\n'); print(os.read(f, 999).decode())")
    said = subprocess.run(["python3", "-c", set_it, program.directory / "breakpoints"], capture_output=True, text=True)
    assert said.stdout.splitlines()[1] == "# 1, 2: here of another open file, and left to it; -ID removes one", said
    assert program.set() == ["1: here log step() if 0", "2: here log step() if 0", "3: log work() if 0"]
    two.run("echo -1 >&3; echo -3 >&3")
    assert program.set() == ["2: here log step() if 0"]
    two.close()
    program.is_as_before()


def test_written_back(program):
    """What a read shows can be written back: it changes nothing, and takes nothing away."""
    one = program.shell()
    one.run("exec 3>>$p/breakpoints; echo 'here log step() if 0' >&3; echo 'log work() if 0' >&3")
    before = program.set()
    assert shell(f"set=$(mktemp) && cat {program.directory}/breakpoints > $set && cat $set > "
                 f"{program.directory}/breakpoints; rm $set").returncode == 0
    assert program.set() == before == ["1: here log step() if 0", "2: log work() if 0"]
    # one stays from now on, the other doesn't
    one.run("echo '1: log step() if 0' >&3; echo '2: here log work() if 0' >&3")
    assert program.set() == ["1: log step() if 0", "2: here log work() if 0"]
    one.kill()
    eventually(lambda: program.set() == ["1: log step() if 0"])


@pytest.mark.parametrize("line, words, column",
                         [("here -1", "`here` belongs to what is set", 0), ("here", "a breakpoint belongs here", 4)])
def test_wrong_lines(program, line, words, column):
    with pytest.raises(Refused) as refused:
        program.commands.run("breakpoints", line + "\n")
    said, shown, caret = refused.value.words.splitlines()
    assert refused.value.errno == errno.EINVAL and words in said and caret == " " * (column + 2) + "^"


def test_steps_and_pauses(program):
    """So do steps and pauses; a step lives no longer than what held the thread before it."""
    for how in f"echo 'here pause' >&3", "echo 'here pause for 1h' >&3; echo next >&3; echo 'here step' >&3":
        one = program.shell()
        one.run(f"exec 3<>$p/threads/{program.worker}/ctl; {how}")
        assert program.held()
        one.kill()
        program.is_as_before()
    two = program.shell()
    two.run("exec 3>>$p/breakpoints; echo 'here stop step()' >&3")
    program.held()
    program.commands.run(f"threads/{program.worker}/ctl", "next\n")  # by a file that is closed at once
    eventually(lambda: "by a step" in program.state(), what="the step's end")  # which the command waits for a moment
    two.run("exec 3>&-")
    program.is_as_before()


def test_pause_of_all(program):
    """`here pause` in ctl: also for threads that come to a line only later."""
    one = program.shell()
    one.run("exec 3<>$p/ctl; echo 'here pause' >&3")
    program.held()
    program.target.send("count")  # its main thread gets to a line
    program.held(program.pid)
    one.kill()
    int(program.target.readline())
    program.is_as_before()
    eventually(lambda: reads_input(program.pid), what="that the main thread waits again")
    one = program.shell()
    one.run("exec 3<>$p/ctl; echo 'here pause' >&3")
    program.held()
    assert f"\nPausing: {program.pid} (read)\n" in (program.directory / "ctl").read_text()
    one.kill()
    eventually(lambda: "Pausing" not in (program.directory / "status").read_text())
    program.is_as_before()  # nothing of it waits for the main thread, which gets to lines here


def test_refused_verbs(program):
    for file, verb in ("ctl", "here detach"), (f"threads/{program.worker}/ctl", "here continue"):
        error, words = program.commands.refused(file, verb + "\n")
        assert error == errno.EINVAL and "`here` belongs to what holds a thread" in words


def test_on_crash(probe, any_python):
    """The exception holds the thread as long as somebody is there; what was asked for before is there again
    afterwards."""
    def thrower():
        target = any_python.run_source("import sys\nprint('ready', flush=True)\nsys.stdin.readline()\nraise "
                                       "KeyError(3)\n")
        return target, probe.path / str(target.pid)
    target, directory = thrower()
    on_crash = lambda: re.search(r"^OnCrash: (.*)$", (directory / "ctl").read_text(), re.M).group(1)  # noqa: E731
    Commands(probe, target.pid).run("ctl", "on-crash record\n")
    one, two = Shell(directory), Shell(directory)
    for each in one, two:
        each.run("exec 3<>$p/ctl; echo 'here on-crash stop' >&3")
    assert on_crash() == "stop"
    one.kill()
    assert on_crash() == "stop"
    two.run("echo 'here on-crash off' >&3")
    eventually(lambda: on_crash() == "record")
    two.run("echo 'here on-crash stop' >&3")
    target.send("")
    eventually(lambda: "stopped by an exception that nobody caught"
               in (directory / "threads" / str(target.pid) / "ctl").read_text())
    two.kill()
    assert target.process.wait(patience(30)) == 1 and target.stderr().endswith("KeyError: 3\n")
    target, directory = thrower()
    one = Shell(directory)
    one.run("exec 3<>$p/ctl; echo 'here on-crash stop' >&3")
    one.kill()
    eventually(lambda: on_crash() == "off")
    target.send("")
    assert target.process.wait(patience(30)) == 1 and target.stderr().endswith("KeyError: 3\n")


def test_detach(program):
    """Nothing of it comes back with the next agent, and the file is good for that one."""
    one = program.shell()
    one.run("exec 3>>$p/breakpoints; echo 'here stop step()' >&3")
    program.held()
    program.commands.detach()
    assert program.set() == [] and program.state() == "running\n"
    one.run("echo 'here stop step()' >&3")
    assert program.held() and len(program.set()) == 1
    one.kill()
    program.is_as_before()


def test_daemon_killed(probe, any_python):
    """Where the daemon dies, the agent takes back what lives as long as its files; the rest stays set."""
    daemon = probe.mount()
    program = Program(daemon, any_python)
    one = program.shell()
    one.run("exec 3>>$p/breakpoints; echo 'here stop step()' >&3; echo 'log work() if 0' >&3")
    program.held()
    daemon.kill()
    daemon.start()
    eventually(lambda: program.set() == ["2: log work() if 0"])
    eventually(lambda: program.state() == "running\n")
    one.kill()
    program.commands.run("breakpoints", "-2\n")
    program.is_as_before()


def test_everywhere(probe, any_python):
    """One open file for lines, or pauses, in many processes."""
    env, job = job_of(3)
    programs = [Program(probe, any_python, {**env, "RANK": str(rank)}) for rank in range(3)]
    for file, line in ("breakpoints", "here stop step()"), ("ctl", "here stop all step()"), ("ctl",
                                                                                             "on 0-2 here stop all"):
        one = Shell(probe.path / "jobs" / job)
        one.run(f"exec 3>>$p/{file}; echo '{line}' >&3")
        for program in programs:
            assert program.held()
        assert all(len(program.set()) == ("step" in line) for program in programs)
        one.kill()
        for program in programs:
            program.is_as_before()


def test_agent_alone(python):
    """What the agent does: at RELEASE, of that number only, and at the end of the channel."""
    target = start(python, "import probing" + SOURCE)
    client = connect(target)
    line = SOURCE.splitlines().index("    count += 1") + 1
    entry = agent.breakpoint(agent.LINE, target.path(), line, action=agent.STOP, flags=agent.HERE)
    assert "as an open file" in client.breakpoints(entry).words
    done(client.breakpoints(entry, here=5))
    done(client.breakpoints(agent.breakpoint(agent.LINE, target.path(), line), here=5))
    worker, = eventually(lambda: client.record.threads())
    client.release(4)
    client.status()
    assert worker in client.record.threads()
    client.release(5)
    eventually(lambda: not client.record.threads())
    done(client.order(agent.PAUSE, here=7))
    wait_stopped(client, worker)
    done(client.order(agent.STEP, worker))
    wait_stopped(client, worker)
    client.release(7)
    eventually(lambda: not client.record.threads())
    waits = client.start("import time\nwhile 'go' not in globals(): time.sleep(0.001)")
    client.wait_started(waits)
    late = client.start_breakpoints(entry, here=8), client.send(agent.ON_CRASH, ORDER.pack(STOP, 0, 0, 0, 0, 8))
    client.release(8)
    target.send("globals().update(go=True)")
    answers = [client.wait(number) for number in (waits, *late)]
    assert [answer.error for answer in answers] == [0, 0, 0]
    number = int(answers[1].text.split(":")[0])
    assert client.breakpoints(agent.breakpoint(agent.REMOVE, id=number)).error == errno.ENOENT
    eventually(lambda: not client.record.threads() and client.record.on_crash == 0)
    for number in range(1000, 1600):  # more than it remembers
        client.release(number)
    client.status()
    number = int(done(client.breakpoints(entry, here=2000)).text.split(":")[0])
    wait_stopped(client, worker)
    client.close()
    eventually(lambda: not client.record.threads())
    with connect(target) as client:
        assert client.breakpoints(agent.breakpoint(agent.REMOVE, id=number)).error == errno.ENOENT
        assert done(client.breakpoints(agent.breakpoint(agent.REMOVE, id=2))).text == "-2\n"
        assert not client.record.threads()
    assert ended(target) == 0
