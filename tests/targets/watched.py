"""Memory that is written when that is asked for, by whom that is asked for; "hot": all the time, also by threads
that are made for it, and says how often."""
import array
import ctypes
import mmap
import os
import signal
import sys
import threading
import time

w = array.array("d", [0.0] * 16)
written = [0, 0]


def write(slot, value):
    w[slot] = value


def hot():
    number = 0
    while True:
        number += 1
        write(3, float(number))
        written[0] += 1
        if number % 50 == 0:
            time.sleep(0.001)


def made():
    while True:
        thread = threading.Thread(target=write, args=(3, -float(written[1])))
        thread.start()
        thread.join()
        written[1] += 1


def in_thread(slot, value):
    thread = threading.Thread(target=write, args=(slot, value))
    thread.start()
    thread.join()


def blocked(slot, value):
    """By a thread that blocks all signals, and stays."""
    def run():
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        write(slot, value)
        done.set()
        time.sleep(1000)

    done = threading.Event()
    threading.Thread(target=run, daemon=True).start()
    done.wait()


def in_child(slot, value):
    child = os.fork()
    if child == 0:
        write(slot, value)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def caught(number, frame):
    print("caught", flush=True)


print("ready", flush=True)
for line in sys.stdin:
    what, *rest = line.split()
    if what == "hot":
        for each in hot, made:
            threading.Thread(target=each, daemon=True).start()
    elif what == "count":
        print(*written, flush=True)
        continue
    elif what == "trap":  # SIGTRAP is to have that effect; and writes go on at once
        how = {"default": signal.SIG_DFL, "ignored": signal.SIG_IGN, "handled": caught}[rest[0]]
        signal.signal(signal.SIGTRAP, how)
        for number in range(1, 40):
            write(3, float(number))
            in_thread(3, float(-number))
    elif what == "unnamed":  # what the kernel says of a watched write where it can't name the register
        libc = ctypes.CDLL(None, use_errno=True)
        info = (ctypes.c_int * 32)(signal.SIGTRAP, 0, 1)  # TRAP_BRKPT
        write(int(rest[0]), float(rest[1]))
        tgsigqueueinfo = 297  # of x86-64, which alone is watched so
        assert libc.syscall(tgsigqueueinfo, os.getpid(), threading.get_native_id(), signal.SIGTRAP, info) == 0
    elif what == "int1":
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(b"\xf1\xc3")
        ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    elif what == "execute":
        os.execv(sys.executable, [sys.executable, "-c", "import time; print('done', flush=True); time.sleep(1000)"])
    else:
        {"write": write, "thread": in_thread, "child": in_child, "blocked": blocked}[what](int(rest[0]), float(rest[1]))
    print("done", flush=True)
