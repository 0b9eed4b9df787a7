"""A user who may not do something looks for somebody else to do it: deputies.py HOW PATH TEXT. What was
done up to the deputy's part is said by "ready"; a line of input has it go on."""
import ctypes
import errno
import mmap
import os
import socket
import struct
import sys
import time

SU = ["/usr/bin/su", "su", "-c", "true", "root"]  # a setuid program, which ends without having asked anybody
IO_SETUP, IO_GETEVENTS, IO_SUBMIT = 206, 208, 209  # system calls of x86-64
IO_URING_SETUP, IO_URING_ENTER, IO_URING_REGISTER = 425, 426, 427


def begin(path, text):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, text)
    return fd


def wait():
    print("ready", flush=True)
    sys.stdin.readline()


def become_su():
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.execl(*SU)


def inherits(path, text):
    """Its exit closes the file."""
    os.set_inheritable(begin(path, text), True)
    become_su()


def says(path, text):
    """What it says ends the text."""
    os.dup2(begin(path, text), 2)
    become_su()


def in_flight(path, text, then):
    """Nobody has a descriptor when the file is released, and who wrote has become somebody else."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    hold = os.open(path, os.O_WRONLY | os.O_APPEND)  # so that a close of the other seems not to be the last
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        fd = begin(path, text)
        socket.send_fds(near, [b"x"], [fd])
        os.close(fd)
        os.close(hold)
        near.close()
        far.close()
        os.write(tell, b"1")
        then()
    os.read(told, 1)
    return child, hold, near, far


def becomes(path, text):
    ours, terminal = os.openpty()  # su waits for a password there, until we are gone

    def become_waiting_su():
        os.setsid()
        for number in range(3):
            os.dup2(terminal, number)
        os.execl(*SU)

    child, hold, near, far = in_flight(path, text, become_waiting_su)
    os.close(terminal)
    end = time.monotonic() + 30
    while "\nUid:\t65534\t0\t" not in open(f"/proc/{child}/status").read():
        assert time.monotonic() < end, "su didn't start"
        time.sleep(0.01)
    os.close(hold)
    near.close()
    far.close()
    wait()
    os.close(ours)
    os.waitpid(child, 0)


def reused(path, text):
    child, hold, near, far = in_flight(path, text, lambda: os._exit(0))
    os.waitpid(child, 0)
    print(child, flush=True)
    wait()
    os.close(hold)
    near.close()
    far.close()


def gives(path, text):
    """To whoever listens at the socket that is the standard input."""
    fd = begin(path, text) if text else os.open(path, os.O_RDWR)
    with socket.socket(fileno=os.dup(0)) as channel:
        socket.send_fds(channel, [b"x"], [fd])
        channel.recv(1)  # in flight nobody sees it: our end would be the end of the input


def writes(path, text):
    """Into a descriptor that it was given."""
    os.write(int(path), text)


def truncates(path, text):
    os.ftruncate(int(path), 0)


class Ring:
    """io_uring(7), with one entry."""
    OPENAT, WRITE, ASYNC, REGISTER_PERSONALITY, GETEVENTS = 18, 23, 1 << 4, 9, 1

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        params = ctypes.create_string_buffer(120)
        self.fd = self.libc.syscall(IO_URING_SETUP, 1, params)
        if self.fd < 0:
            print("refused", os.strerror(ctypes.get_errno()), flush=True)
            sys.exit()
        numbers = struct.unpack("30I", params.raw)
        self.tail, self.array, self.done = numbers[11], numbers[16], numbers[25]
        size = max(self.array + 4 * numbers[0], self.done + 16 * numbers[1])
        self.ring = mmap.mmap(self.fd, size, offset=0)
        self.entries = mmap.mmap(self.fd, 64 * numbers[0], offset=0x10000000)

    def submit(self, operation, fd, address, size, flags=0, personality=0, wait=0):
        self.entries[:64] = struct.pack("BBHiQQIIQHHiQQ", operation, flags, 0, fd, 0, address, size, 0, 0, 0,
                                        personality, 0, 0, 0)
        tail, = struct.unpack_from("I", self.ring, self.tail)
        struct.pack_into("I", self.ring, self.array, 0)
        struct.pack_into("I", self.ring, self.tail, tail + 1)
        assert self.libc.syscall(IO_URING_ENTER, self.fd, 1, wait, Ring.GETEVENTS, None, 0) == 1

    def result(self, number):
        return struct.unpack_from("i", self.ring, self.done + 16 * number + 8)[0]


def submits(path, text):
    """The kernel's thread writes, and is gone when this becomes su."""
    ring, fd = Ring(), os.open(path, os.O_WRONLY)
    buffer = ctypes.create_string_buffer(text)
    ring.submit(Ring.WRITE, fd, ctypes.addressof(buffer), len(text), flags=Ring.ASYNC, wait=1)
    assert ring.result(0) == len(text)
    os.set_inheritable(fd, True)
    become_su()


def personality(path, text):
    """Root's server, that opens a file with the credentials of a client."""
    ring = Ring()
    os.setresuid(65534, 65534, 0)
    number = ring.libc.syscall(IO_URING_REGISTER, ring.fd, Ring.REGISTER_PERSONALITY, None, 0)
    os.setresuid(0, 0, 0)
    name = ctypes.create_string_buffer(path.encode())
    for count, who in enumerate((0, number)):
        ring.submit(Ring.OPENAT, -100, ctypes.addressof(name), 0, personality=who, wait=count + 1)
        result = ring.result(count)
        print(errno.errorcode[-result] if result < 0 else "opened", flush=True)


def maps(path, text):
    fd = os.open(path, os.O_RDWR)
    os.write(fd, text)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 \
        + [ctypes.c_long]
    where = libc.mmap(None, 4096, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    print(errno.errorcode[ctypes.get_errno()] if where == 2**64 - 1 else "mapped")


def asynchronous(path, text):
    """io_submit(2) of a write to a file whose size isn't 0: it would not be waited for. Says how much
    of it is done when the call returns."""
    libc = ctypes.CDLL(None, use_errno=True)
    reader = os.open(path, os.O_RDONLY)
    assert os.fstat(reader).st_size >= len(text)
    fd = os.open(f"/proc/self/fd/{reader}", os.O_WRONLY)
    context = ctypes.c_ulong()
    assert libc.syscall(IO_SETUP, 1, ctypes.byref(context)) == 0
    buffer = ctypes.create_string_buffer(text)
    control = ctypes.create_string_buffer(struct.pack(
        "QIiHHIQQqQII", 0, 0, 0, 1, 0, fd, ctypes.addressof(buffer), len(text), 0, 0, 0, 0))  # IOCB_CMD_PWRITE
    pointer = ctypes.c_void_p(ctypes.addressof(control))
    assert libc.syscall(IO_SUBMIT, context, ctypes.c_long(1), ctypes.byref(pointer)) == 1
    events, now = ctypes.create_string_buffer(32), struct.pack("qq", 0, 0)
    print(libc.syscall(IO_GETEVENTS, context, ctypes.c_long(0), ctypes.c_long(1), events, now), flush=True)


def loses(path, text):
    """Its capabilities, between a look at a file's size and the opening of it."""
    os.stat(path)
    libc = ctypes.CDLL(None, use_errno=True)
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    assert libc.capset(header, none) == 0
    print(open(path).read())


def shows(path, text):
    """Its own frame, as if it came from a file of somebody else's."""
    source = f"{text.decode()}/threads/{os.getpid()}/frames/0/source"
    print(eval(compile("open(source).read()", path, "eval"), {"source": source}))


globals()[sys.argv[1]](sys.argv[2], sys.argv[3].encode())
