"""What the agent records, asked for in its own protocol: rings that come and go."""
import errno
import os
import random
import time

import pytest

import agent_client as agent
import ring_file
from agents import clients, connect, ended, start  # noqa: F401, a fixture
from commands import Commands
from interpreters import eventually
from recording import BY_ITSELF, DEFAULT, MAXIMUM, MINIMUM, again, off, on, places, rings_of, switched, tasks

pytestmark = pytest.mark.python(minimum=(3, 10))


def test_places(python):
    """The record says where the rings are, and each change of it is told."""
    target = start(python)
    client = connect(target)
    assert all(place["on"] == (table in BY_ITSELF) and place["fd"] == -1
               for table, place in places(client).items())
    assert client.status()["rings"] == 0 and rings_of(target.pid) == 0
    on(client, "process_samples")
    on(client, "gc", size=1 << 20)
    told = client.rings_told
    assert told >= 2
    assert client.status()["rings"] >= DEFAULT + (1 << 20)
    assert places(client)["gc"]["size"] == 1 << 20
    assert places(client)["process_samples"]["size"] == DEFAULT
    off(client, "gc")
    assert places(client)["gc"]["fd"] >= 0  # the rows stay
    assert client.rings_told > told
    with ring_file.find(target.pid, "gc") as ring:
        assert ring.size == 1 << 20 and ring.pid == target.pid and ring.rows == []
    assert ended(target) == 0


def test_bad_requests(any_python):
    target = start(any_python)
    client = connect(target)
    for options, error in ((dict(table="gc", size=MINIMUM - 1), errno.EINVAL),
                           (dict(table="gc", size=MAXIMUM + 1), errno.EINVAL),
                           (dict(table="gc", size=2**64 - 1), errno.EINVAL),
                           (dict(table="gc", rate=0.5), errno.EINVAL),
                           (dict(table="gc", rate=-1.0), errno.EINVAL),
                           (dict(table="gc", rate=float("nan")), errno.EINVAL),
                           (dict(table="gc", action=0), errno.EINVAL),
                           (dict(table="gc", action=3), errno.EINVAL),
                           (dict(table="gc", interp=99), errno.ENOENT),
                           (dict(table=len(agent.TABLES)), errno.EOPNOTSUPP),
                           (dict(table=2**32 - 1), errno.EOPNOTSUPP)):
        answer = client.switch(**options)
        assert answer.error == error and answer.words, options
        assert {table for table, place in places(client).items() if place["on"]} == BY_ITSELF
    assert ended(target) == 0


def test_no_room(any_python):
    """What can't be had is said, and nothing has happened."""
    target = start(any_python)
    client = connect(target)
    client.eval("import resource")
    client.eval("resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))")
    for table in ("gc", "process_samples"):
        answer = client.switch(table)
        assert answer.error == errno.EFBIG and "4096 KiB" in answer.words
        assert places(client)[table]["fd"] == -1
    client.eval("resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)")
    client.eval("resource.setrlimit(resource.RLIMIT_NOFILE, (0, 4096))")
    assert client.switch("gc").error == errno.EMFILE
    client.eval("resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))")
    on(client, "gc")
    assert ended(target) == 0


def test_resize(python):
    """Rows are kept, in either direction; what is replaced is given back."""
    target = start(python)
    client = connect(target)
    client.eval("import gc; gc.disable()")
    on(client, "gc", size=MINIMUM)
    for generation in (0, 1, 2):
        client.eval(f"gc.collect({generation})")
    for size in (1 << 20, MINIMUM, 1 << 20, DEFAULT) * 10:
        on(client, "gc", size=size)
        assert places(client)["gc"]["size"] == size
        with ring_file.find(target.pid, "gc") as ring:
            assert ring.size == size and [row.generation for row in ring.rows] == [0, 1, 2]
        assert rings_of(target.pid) == 1
    assert client.status()["rings"] < DEFAULT + (1 << 20)
    on(client, "gc")  # as it is
    assert places(client)["gc"]["size"] == DEFAULT
    off(client, "gc")
    on(client, "gc")
    client.eval("gc.collect(0)")
    assert [row.generation for row in ring_file.rows(target.pid, "gc")] == [0, 1, 2, 0]
    assert ended(target) == 0


def test_resize_too_often(any_python):
    """Without Python nobody knows that no thread has an old one in hand: so many are kept, and no more."""
    target = start(any_python)
    client = connect(target)
    errors = [switched(client, "process_samples", size=(i % 2 + 1) * MINIMUM).error for i in range(30)]
    assert errors[:16] == [0] * 16 and errors[-1] == errno.EBUSY
    assert client.status()["rings"] < 1 << 20
    assert places(client)["process_samples"]["on"] == 1  # as before
    off(client, "process_samples")  # its thread has ended
    on(client, "process_samples", size=1 << 20)
    assert client.detach().error == 0
    eventually(lambda: rings_of(target.pid) == 0)
    assert ended(target) == 0


def test_gil_held(python):
    """Switching on waits for the GIL, and can be given up; what needs none, and the end of writing, don't."""
    target = start(python)
    client = connect(target)
    client.eval("import ctypes, os\nreader, writer = os.pipe()")
    writer = int(client.eval("writer").text)
    on(client, "gc")
    running = client.start("ctypes.PyDLL(None).read(reader, ctypes.create_string_buffer(1), 1)")  # keeps the GIL
    client.wait_started(running)
    on(client, "process_samples")
    assert ring_file.wait_rows(target.pid, "process_samples", 2)
    wanted = client.start_switch("gc", agent.OFF)
    eventually(lambda: places(client)["gc"]["on"] == 0)
    client.cancel(wanted)
    assert client.wait(wanted).error == errno.ECANCELED
    off(client, "process_samples")
    assert client.answers[running].done is None
    with open(f"/proc/{target.pid}/fd/{writer}", "wb") as pipe:
        pipe.write(b"x")
    client.wait(running)
    assert client.eval("import gc; len(gc.callbacks)").text == "1\n"  # it does nothing
    off(client, "gc")
    assert client.eval("gc.callbacks").text == "[]\n"
    assert ended(target) == 0


def test_on_and_off(python):
    """From all sides at once: the last one wins, and nothing is left."""
    target = start(python)
    client = connect(target)
    client.eval("import gc")
    for _ in range(20):
        asked = [client.start_switch(table, action) for action in (agent.ON, agent.ON, agent.OFF, agent.ON)
                 for table in ("gc", "process_samples")]
        assert all(client.wait(number).error == 0 for number in asked)
        assert client.eval("len(gc.callbacks)").text == "1\n"
        eventually(lambda: tasks(target.pid).count("probe-sampler") == 1)  # it names itself
        off(client, "gc")
        off(client, "process_samples")
        assert client.eval("gc.callbacks").text == "[]\n"
        eventually(lambda: "probe-sampler" not in tasks(target.pid))  # the kernel may list it after it was joined
    assert ended(target) == 0


def test_daemon_gone(python):
    """It is a flight recorder: nobody has to listen. The next daemon finds it as it is."""
    target = start(python)
    client = connect(target)
    client.eval("import gc, threading, time; gc.disable()")
    on(client, "gc")
    on(client, "process_samples")
    asked = client.start("threading.Thread(target=lambda: (time.sleep(0.5), gc.collect(1)), daemon=True).start()")
    client.wait(asked)
    client.close()
    assert [row.generation for row in ring_file.wait_rows(target.pid, "gc", 1)] == [1]
    seen = len(ring_file.rows(target.pid, "process_samples"))
    ring_file.wait_rows(target.pid, "process_samples", seen + 1)
    client = connect(target)
    assert [table for table, place in places(client).items() if place["fd"] >= 0] == ["gc", "process_samples"]
    on(client, "gc")
    client.eval("gc.collect(2)")
    assert [row.generation for row in ring_file.rows(target.pid, "gc")] == [1, 2]
    off(client, "gc")
    assert ended(target) == 0


def test_first_use(python):
    """Spans and events are recorded from the first one on. Where that can't be, it is said and not tried again."""
    target = start(python, """
        import probing, resource, sys
        print("ready", flush=True)
        for line in sys.stdin:
            if line == "none\\n":
                resource.setrlimit(resource.RLIMIT_NOFILE, (0, 4096))
            elif line == "some\\n":
                resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
            elif line == "start\\n":
                probing.start()
            else:
                probing.event(line.strip())
            print("done", flush=True)
        """)

    def tell(line):
        target.send(line)
        target.expect("done")

    client = connect(target)
    for line in ("none", "first", "some", "second"):
        tell(line)
    assert rings_of(target.pid) == 0
    place = places(client)["events"]
    assert (place["on"], place["fd"], place["error"]) == (0, -1, errno.EMFILE)
    client.status()
    assert client.rings_told == 1
    on(client, "events")
    tell("third")
    off(client, "events")
    tell("fourth")
    on(client, "events", size=MINIMUM)
    tell("fifth")
    assert [row.name for row in ring_file.rows(target.pid, "events")] == ["third", "fifth"]
    assert client.detach().error == 0
    client = again(target)
    target.expect("done")
    tell("sixth")
    client.status()
    assert client.rings_told == 1 and places(client)["events"]["on"] == 1
    assert [row.name for row in ring_file.rows(target.pid, "events")] == ["sixth"]
    assert ended(target) == 0


def test_first_use_fails(probe, python):
    """A person sees why."""
    target = start(python, """
        import probing, resource, sys
        print("ready", flush=True)
        sys.stdin.readline()
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        probing.event("lost")
        print("done", flush=True)
        sys.stdin.readline()
        """)
    target.send("go")
    target.expect("done")
    assert "Record: events off 0 rows=0 lost=0 error=EFBIG\n" in Commands(probe, target.pid).run("ctl", "record\n")
    assert ended(target) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="wants root")
def test_size_without_proc(any_python, tmp_path):
    """In a root without /proc nobody knows what memory is left: a larger ring is refused for that reason."""
    target = start(any_python)
    client = connect(target)
    client.eval(f"import os; os.chroot({str(tmp_path)!r})")
    answer = client.switch("gc", size=DEFAULT + 1)
    assert answer.error == errno.ENOMEM and "/proc" in answer.words and "4096 KiB" in answer.words, answer.words
    assert places(client)["gc"]["on"] == 0
    on(client, "gc", size=DEFAULT)
    answer = client.switch("gc", size=2 * DEFAULT)
    assert answer.error == errno.ENOMEM and places(client)["gc"]["size"] == DEFAULT, answer.words
    assert ended(target) == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_at_random(python, seed):
    """Whatever is asked, cancelled and written at once: each request has one answer, and the program its results."""
    target = start(python, """
        import gc, probing, sys, threading
        over = False
        def work():
            done = 0
            while not over:
                with probing.span("work", round=done):
                    try:
                        raise ValueError(done)
                    except ValueError as error:
                        probing.event("caught", what=str(error))
                    cycle = []
                    cycle.append(cycle)
                    assert sum(range(done % 50)) == done % 50 * (done % 50 - 1) // 2
                done += 1
            ended.append(done)
        ended = []
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads: thread.start()
        print("ready", flush=True)
        sys.stdin.readline()
        over = True
        for thread in threads: thread.join()
        print(len(ended), flush=True)
        sys.stdin.read()
        """)
    dice = random.Random(f"{seed} {python}")
    client = connect(target)
    possible = {"events", "gc", "process_samples", "spans"} | ({"exceptions"} if client.switch("exceptions").error == 0
                                                               else set())
    asked = []
    for _ in range(150):
        kind = dice.random()
        if kind < 0.6:
            asked.append(client.start_switch(dice.choice(sorted(possible)),
                                             dice.choice([agent.ON, agent.ON, agent.OFF]),
                                             size=dice.choice([0, 0, MINIMUM, 1 << 20])))
        elif kind < 0.8:
            asked.append(client.start("6 * 7"))
        elif asked:
            client.cancel(dice.choice(asked))
        if dice.random() < 0.2:
            for number in asked:
                assert client.wait(number).error in (0, errno.ECANCELED, errno.EINTR, errno.EBUSY, errno.EAGAIN)
            asked.clear()
    for number in asked:
        client.wait(number)
    for table in possible:
        off(client, table)
    assert client.eval("gc.callbacks").text == "[]\n"
    for table in possible:
        on(client, table)
    assert client.detach().error == 0
    target.send("end")
    target.expect("3")
    assert ended(target) == 0
