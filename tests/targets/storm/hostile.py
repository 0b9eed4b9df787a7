"""hostile.py LIBRARY MODE [SEED]: pretends to be a process with an agent (LIBRARY, imposter.c), whose
channel and record do what MODE says. The numbers are those of agent/wire/proto.h."""
import array
import os
import random
import select
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from imposter_record import load

RUNNING = 1
HELLO, EVAL, TEXT, CANCEL, STATUS, DETACH = range(1, 7)
READY, STARTED, OUTPUT, DONE, RINGS = range(64, 69)
FRAME_MAX = 32768
record = load(sys.argv[1])
mode = sys.argv[2]
dice = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
kept = []  # descriptors that must stay open


def frame(op, number, body=b"", size=None):
    return struct.pack("=IHHQ", 16 + len(body) if size is None else size, op, 0, number) + body


def ready(nonce=0, version=record.version):
    return struct.pack("=IIQQiiQQQ16s", version, 1, nonce, 0, os.getpid(), os.getpid(), 1 << 20, 0,
                       7, b"1.0")


def done(error=0, flags=0, consumed=0, words=b""):
    return struct.pack("=iIQQQ200s", error, flags, consumed, 5, 5, words)


def publish(channel):
    record.pid, record.origin, record.channel_tid = os.getpid(), 1, os.getpid()
    record.channel = channel
    record.generation += 1
    record.state = RUNNING


def greet(near):
    """Answers HELLO as an agent does."""
    hello = near.recv(FRAME_MAX)
    if hello:
        _, op, _, number = struct.unpack_from("=IHHQ", hello)
        near.send(frame(READY, number, ready(struct.unpack_from("=IIQ", hello, 16)[2])))
    return bool(hello)


def requests(near):
    """(op, id, body) of each request after the greeting; the first part only of a long text."""
    while True:
        packet = near.recv(FRAME_MAX)
        if not packet:
            return
        _, op, _, number = struct.unpack_from("=IHHQ", packet)
        if op != TEXT:
            yield op, number, packet[16:]


def garbage(near):
    while near.recv(FRAME_MAX):
        near.send(dice.randbytes(dice.choice([1, 15, 16, 17, 300, FRAME_MAX - 1])))


def near_garbage(near):
    """Well-formed frames of any kind, some with a wrong field."""
    greet(near)
    for _, number, _ in requests(near):
        for _ in range(20):
            body = dice.choice([b"", ready(dice.getrandbits(64)), done(dice.getrandbits(31)),
                                dice.randbytes(dice.randrange(400))])
            near.send(frame(dice.choice([READY, STARTED, OUTPUT, DONE, RINGS, HELLO, 99]),
                            dice.choice([number, number + 1, 0, 2**64 - 1]), body,
                            dice.choice([None, None, None, 0, 2**32 - 1])))


def silent(near):
    while near.recv(FRAME_MAX):
        pass


def deaf(near):
    """Says hello, and reads nothing any more: what is sent to it stays in the socket."""
    greet(near)
    time.sleep(10**6)


def stalls(near):
    greet(near)
    for op, number, _ in requests(near):
        if op == EVAL:
            near.send(frame(STARTED, number))


def floods_first(near):
    while True:
        near.send(frame(READY, 1, ready()))


def floods_output(near):
    greet(near)
    for op, number, _ in requests(near):
        if op == EVAL:
            near.send(frame(STARTED, number))
            while True:
                near.send(frame(OUTPUT, number, b"x" * 30000))


def floods_strangers(near):
    greet(near)
    while True:
        near.send(frame(OUTPUT, dice.getrandbits(64) | 1, b"x" * 1000))


def floods_rings(near):
    greet(near)
    while True:
        near.send(frame(RINGS, 0))


def rings_instead(near):
    """Never greets, but says something all the time."""
    while True:
        near.send(frame(RINGS, 0))


def other_version(near):
    hello = near.recv(FRAME_MAX)
    nonce = struct.unpack_from("=IIQ", hello, 16)[2]
    near.send(frame(READY, struct.unpack_from("=IHHQ", hello)[3], ready(nonce, 99)))
    silent(near)


def wrong_size(near):
    hello = near.recv(FRAME_MAX)
    near.send(frame(READY, struct.unpack_from("=IHHQ", hello)[3], ready(), size=2**31))
    silent(near)


def hangs_up(near):
    greet(near)
    near.close()


def lies(near):
    """DONE with errors that are none, more consumed than was sent, and words without an end."""
    greet(near)
    for op, number, _ in requests(near):
        near.send(frame(DONE, number, done(dice.choice([-5, 2**31 - 1, 133, 4096, -(2**31)]),
                                           2**32 - 1, 2**64 - 1, b"\xff\x1b[31m" * 40)))
        near.send(frame(DONE, number, done()))
        near.send(frame(OUTPUT, number, b"after the end"))


def descriptors(near):
    greet(near)
    many = array.array("i", [near.fileno()] * 200)
    for _, number, _ in requests(near):
        for _ in range(50):
            near.sendmsg([frame(OUTPUT, number, b"x")],
                         [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])


def pairs(talk):
    """A channel as an agent's, made anew when the daemon hangs up; talk(near) for each."""
    while True:
        near, spare = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        publish(spare.fileno())
        select.select([near], [], [], 10**6 if talk is not floods_first else 0.01)
        spare.close()
        try:
            talk(near)
        except (OSError, struct.error):
            pass
        near.close()


def scribbles():
    """A record whose every field changes all the time."""
    view = memoryview(record).cast("B")
    while True:
        publish(dice.choice([0, 1, 2, -1, 10**9]))
        for _ in range(50):
            view[dice.randrange(len(view))] = dice.randrange(256)
        time.sleep(0)


def descriptor_of(what):
    if what == "zero":
        return os.open("/dev/zero", os.O_RDWR)
    if what == "pipe":
        return os.pipe()[0]
    if what == "epoll":
        kept.append(select.epoll())
    elif what == "listener":
        kept.append(socket.create_server(("127.0.0.1", 0)))
    elif what == "datagrams":
        kept.extend(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
    elif what == "stream":
        kept.extend(socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
    elif what == "file":
        kept.append(open(__file__))
    else:
        return int(what)
    return kept[-1].fileno()


TALKS = {talk.__name__: talk for talk in (
    garbage, near_garbage, silent, deaf, stalls, floods_first, floods_output, floods_strangers,
    floods_rings, rings_instead, other_version, wrong_size, hangs_up, lies, descriptors)}

if mode in TALKS:
    threading.Thread(target=pairs, args=(TALKS[mode],), daemon=True).start()
elif mode == "scribbles":
    threading.Thread(target=scribbles, daemon=True).start()
else:
    publish(descriptor_of(mode))
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
