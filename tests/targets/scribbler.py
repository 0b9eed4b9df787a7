"""scribbler.py SEED: overwrites the frames, code objects, names, line tables and thread state of
threads that are parked for good, so that nothing but a reader from outside ever meets them."""
import ctypes
import gc
import os
import random
import sys
import threading
import time

import oracle

random_ = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
threads = 8
lock = threading.Lock()
lock.acquire()
arrived = threading.Semaphore(0)
states = []
get_state = ctypes.pythonapi.PyThreadState_Get
get_state.restype = ctypes.c_void_p


def victim_leaf(depth):
    if depth:
        victim_leaf(depth - 1)
    states.append(get_state())
    arrived.release()
    lock.acquire()


def victim(source, depth):
    names = {"victim_leaf": victim_leaf}
    exec(source, names)
    names["scribbled"](depth)


SOURCE = "def scribbled(depth, a=1, b='x', c=(1, 2)):\n    d = {1: [2], 'k': {3}}\n    " \
         "e = [i for i in range(3)]\n    victim_leaf(0)\n"
for i in range(threads):
    threading.Thread(target=victim, args=(SOURCE, i), name=f"victim-{i}", daemon=True).start()
for i in range(threads):
    arrived.acquire()

gc.disable()  # its walk over the objects would meet the damage
mine = threading.get_ident()
sane = {t.ident for t in threading.enumerate() if not t.name.startswith("victim")}
CODE_SIZE = 128  # less than sizeof(PyCodeObject) in every version
places = []      # (address, size) of what may be overwritten
keep = []
for ident, frame in sys._current_frames().items():
    if ident in sane or ident == mine:
        continue
    while frame is not None and frame.f_code.co_name != "victim":
        keep.append(frame)
        code = frame.f_code
        if code.co_name != "victim_leaf":  # all victims share that one
            places.append((id(code), CODE_SIZE))
            table = getattr(code, "co_linetable", getattr(code, "co_lnotab", b""))
            for text in code.co_name, code.co_filename, table:
                if len(text) > 1:  # shorter ones are shared by everybody
                    places.append((id(text), sys.getsizeof(text)))
            for value in frame.f_locals.values():
                if isinstance(value, (dict, list)):
                    places.append((id(value), 40))
        places.append((id(frame), 64))
        if sys.version_info >= (3, 11):  # PyFrameObject.f_frame: the interpreter's own frame
            inner = ctypes.c_uint64.from_address(id(frame) + 24).value
            places.append((inner, 88))
        frame = frame.f_back
frame = None
for state in states:
    places.append((state + 16, 240))

words = [0, 1, 2**63 - 1, 2**64 - 1, 2**62, 0x7FFF_FFFF_F000, 0x10, 0xFFFF_8000_0000_0000]
oracle.ready()


def scribble():
    address, size = random_.choice(places)
    offset = random_.randrange(max(1, size // 8)) * 8
    choice = random_.random()
    if choice < 0.3:
        value = random_.choice(words)
    elif choice < 0.6:  # a valid pointer to the wrong thing; loops and shared parts
        value = random_.choice(places)[0]
    elif choice < 0.8:  # a small change of what is there
        value = ctypes.c_uint64.from_address(address + offset).value ^ 1 << random_.randrange(64)
    else:
        value = random_.getrandbits(64)
    ctypes.c_uint64.from_address(address + offset).value = value


# Each time little is damaged, and it holds still for a moment: of what is all damaged, or never the same, nothing but
# that is told.
whole = [(address, ctypes.string_at(address, size)) for address, size in places]
while os.getppid() != 1:
    for address, was in whole:
        ctypes.memmove(address, was, len(was))
    for _ in range(random_.randrange(30)):
        scribble()
    time.sleep(random_.random() * 0.02)
