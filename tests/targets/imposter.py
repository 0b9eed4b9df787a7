"""imposter.py MODE [PATH]: a process that claims to have an agent, and means no good. PATH is a file
that `file` hands out as its channel, or a socket that `service` connects with."""
import os
import socket
import struct
import sys
import threading
import time

from imposter_record import load

HEADER = struct.Struct("=IHHQ")
READY, STARTED, OUTPUT, DONE = range(64, 68)
record = load()
mode = sys.argv[1]


def frame(op, request, body=b""):
    return HEADER.pack(HEADER.size + len(body), op, 0, request) + body


def ready(hello):
    nonce = hello[24:32]
    return struct.pack("=II", record.version, 2) + nonce + struct.pack("=QiiQQQ16s", 1, 77, 0, 1, 0, 1,
                                                          b"\x1b[31m" + b"x" * 11)


def done(error=0, consumed=0, words=b""):
    return struct.pack("=iIQQQ200s", error, 0, consumed, 0, 0, words)


def serve(mine):
    """Greets as an agent does, then answers each request in its own way."""
    while True:
        hello = mine.recv(40000)
        if not hello:
            return
        size, op, _, request = HEADER.unpack_from(hello)
        if op == 1 and mode == "refuse":
            mine.send(frame(DONE, request, done()))
        elif op == 1 and mode == "descriptors":
            socket.send_fds(mine, [frame(READY, request, ready(hello))], [0])
        elif op == 1:
            mine.send(frame(READY, request, ready(hello)))
        elif mode == "garbage":
            mine.send(b"garbage")
        elif mode == "flood":
            while True:
                mine.send(frame(OUTPUT, request, b"x" * 32000))
        elif mode == "unknown":
            while True:
                mine.send(frame(OUTPUT, request + 1000, b"x"))
        elif mode == "consumed":
            mine.send(frame(DONE, request, done(consumed=1 << 40)))
        elif mode == "late":
            mine.send(frame(DONE, request, done(0, 2, b"\x1b]0;title\x07" + b"y" * 189)))
            mine.send(frame(OUTPUT, request, b"x"))
        elif mode == "hangs up":
            os._exit(3)


def run():
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    record.channel = theirs.fileno()
    if mode == "pipe":
        record.channel = os.pipe()[0]
    elif mode == "file":
        record.channel = os.open(sys.argv[2], os.O_RDONLY)
    elif mode == "service":
        service = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        service.connect(sys.argv[2])
        record.channel = service.detach()
    elif mode == "stream":
        record.channel = socket.socketpair()[0].detach()
    elif mode == "closed":
        record.channel = 987
    elif mode == "version":
        record.version = 77
    elif mode == "handle":
        record.handle = 0xdeadbeef
    record.pid = os.getpid()
    record.state = 1
    print("ready", flush=True)
    if mode == "mute":
        time.sleep(1000)
    try:
        serve(mine)
    except OSError:
        pass  # the daemon has hung up
    print("over", flush=True)


threading.Thread(target=run, daemon=True).start()
sys.stdin.read()
