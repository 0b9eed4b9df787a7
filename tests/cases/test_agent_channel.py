"""The agent's end of the channel: daemons that go, don't read, come twice or talk nonsense."""
import errno
import random
import struct

import pytest

import agent_client as agent
from agents import clients, connect, descriptors, ended, start  # noqa: F401, a fixture
from interpreters import eventually

pytestmark = pytest.mark.python(minimum=(3, 10))


def test_daemon_goes(python):
    target = start(python)
    before = descriptors(target.pid)
    client = connect(target)
    client.eval("import time; ran = []; fast = True")
    for i in range(20):
        generation = client.record.read().generation
        running = client.start("while fast: pass\nran.append(1)")
        client.wait_started(running)
        client.start("ran.append(2)")
        client.close()
        eventually(lambda: client.record.read().generation == generation + 1)
        client = connect(target)
        assert client.eval("ran").text == "[]\n"
    client.close()
    eventually(lambda: descriptors(target.pid) == before)
    # one that was only slow to be interrupted may have been taken over from: it ends
    eventually(lambda: len(target.tids()) == 3, what="the threads as before")
    assert ended(target) == 0


def test_daemon_does_not_read(python):
    target = start(python)
    client = connect(target)
    generation = client.record.read().generation
    client.start("print('x' * (4 << 20))", output_max=16 << 20)
    eventually(lambda: client.record.read().generation > generation)
    client = connect(target)
    assert client.eval("1").text == "1\n"


def test_second_daemon(python):
    target = start(python)
    first = connect(target, hello=False)
    second = connect(target, hello=False)
    first.nonce, second.nonce = 11, 22
    a = first.send(agent.HELLO, struct.pack("=IIQ", 1, 0, 11))
    assert first.wait(a).ready["nonce"] == 11
    b = second.send(agent.HELLO, struct.pack("=IIQ", agent.VERSION, 0, 22), 7)
    assert second.wait(b).ready["nonce"] == 11
    second.close()
    assert first.eval("1").text == "1\n"


def test_garbage(python):
    """A daemon that breaks the protocol loses its channel; the target does not care."""
    target = start(python)
    seed = random.Random(5)
    header = agent.HEADER.pack
    eval_body = agent.EVAL_BODY.pack(0, 0, 1, 0, 0, 4, 0, 0, 0)
    frames = [
        b"x", b"", header(17, agent.STATUS, 0, 1), header(16, agent.STATUS, 1, 1),
        header(16, agent.STATUS, 0, 0), header(16, 0, 0, 1), header(16, agent.READY, 0, 1),
        header(20, agent.EVAL, 0, 1) + b"xxxx",
        header(16 + agent.EVAL_BODY.size + 5, agent.EVAL, 0, 1) + eval_body + b"12345",
        header(16 + agent.EVAL_BODY.size, agent.EVAL, 0, 1) + agent.EVAL_BODY.pack(
            0, 0, 1, 0, 0, (1 << 20) + 1, 0, 0, 0),
        header(16 + agent.EVAL_BODY.size, agent.EVAL, 0, 1) + agent.EVAL_BODY.pack(
            0, 0, 1, 0, 0, 1, (16 << 20) + 1, 0, 0),
        *[seed.randbytes(seed.randrange(1, 200)) for _ in range(20)],
        *[header(16 + n, seed.choice([8, 63, 99]), 0, 1) + seed.randbytes(n) for n in range(20)],
    ]
    for frame in frames:
        for greet in (True, False):
            client = connect(target, hello=greet)
            client.send_raw(frame)
            with pytest.raises((agent.Gone, TimeoutError)):
                client.receive(10)
            client.close()
    client = connect(target)
    # an id that is used twice, and an address that is no switch interval
    number = client.start("x", gil_interval=0x1000)
    assert client.wait(number).error == errno.EIO
    number = client.start("import time\nwhile True: time.sleep(0.001)", gil_interval=1)
    with pytest.raises(agent.Gone):
        client.send(agent.EVAL, eval_body, number)
        client.wait(number)
    assert connect(target).eval("1").text == "1\n"
    assert ended(target) == 0


def test_program_closes_descriptors(python):
    """A program that closes all descriptors, and gets their numbers for itself, keeps what it
    then opens."""
    target = start(python, """
        import os, probing, socket, sys
        print("ready", flush=True)
        sys.stdin.readline()
        os.closerange(3, 100)
        pairs = [socket.socketpair() for _ in range(4)]
        print("closed", flush=True)
        sys.stdin.readline()
        for a, b in pairs:
            a.send(b"mine")
            assert b.recv(10) == b"mine"
        print("whole", flush=True)
        sys.stdin.read()
        """)
    client = connect(target)
    client.eval("1")
    target.send("close")
    target.expect("closed")
    with pytest.raises(agent.Gone):
        for _ in range(3):
            client.send(agent.STATUS)
            client.receive()
    client.close()
    client = connect(target)
    assert client.eval("1").text == "1\n"
    target.send("use")
    target.expect("whole")
    assert ended(target) == 0
