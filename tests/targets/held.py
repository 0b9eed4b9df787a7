"""held.py: objects referred to in one way each; prints the address of each of Held's, and what refers to it."""
import collections
import sys
import threading


class Held:
    __slots__ = ()


class Leak:
    def __init__(self, number):
        self.number = number


class Plain:
    pass


class Slotted:
    __slots__ = ("slot",)


class Trainer:
    def __init__(self):
        self.history = [Leak(number) for number in range(5000)]


def held(where, **names):
    thing = Held()
    print(hex(id(thing)), where, flush=True)
    return thing


def wait(local):
    ready.set()
    sys.stdin.read()


a_list = [None] * 100 + [held("list [100]")]
a_large_list = [None] * 100_000 + [held("list [100000]")]
a_tuple = (1, 2, held("tuple [2]"))
a_dict = {"key": held("dict ['key']")}
a_large_dict = {**{str(number): None for number in range(10_000)}, "last": held("dict ['last']")}
keys = {held("dict key "): 1}
a_set = {held("set")}
a_large_set = {*range(10_000), held("set ")}
a_deque = collections.deque([None] * 1000 + [held("collections.deque")])
plain = Plain()
plain.attribute = held("__main__.Plain .attribute")
slotted = Slotted()
slotted.slot = held("__main__.Slotted .slot")
one = held("module __main__ one")
trainer = Trainer()
ready = threading.Event()
thread = threading.Thread(target=wait, args=(held("frame wait"),))
thread.start()
ready.wait()
print("ready", flush=True)
thread.join()
