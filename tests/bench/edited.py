"""edited.py [debugpy [DIRECTORY]]: a program to stop, look at and step in. debugpy prints the port on which it
listens."""
import sys
import time


class Node:
    def __init__(self, name, depth):
        self.name, self.depth = name, depth
        self.kids = [Node(f"{name}.{i}", depth - 1) for i in range(2)] if depth else []
        self.meta = {"depth": depth, "name": name}


def work(i):
    node = NODE
    total = i * 2  # stop
    words = ["a", "b", "c"]
    rate = total / 3
    total += len(words) + rate
    return total, node


NODE = Node("n", 3)
port = 0
if len(sys.argv) > 1:
    sys.path[:0] = sys.argv[2:]
    import debugpy
    port = debugpy.listen(("127.0.0.1", 0))[1]
print("ready", flush=True)
print(port, flush=True)
i = 0
while True:
    i += 1
    work(i)
    time.sleep(0.005)
