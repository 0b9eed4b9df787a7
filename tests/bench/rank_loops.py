"""What a rank does, for tests/bench/ranks.py: a line on standard input is evaluated, and what comes of it printed. As
`rank_loops.py ranks`: three threads that wait, and a main thread in a collective, without PyTorch."""
import os
import struct
import sys
import tempfile
import threading
import time


def all_reduce():
    print("ready", flush=True)
    sys.stdin.read()


def train(step):
    all_reduce()


if "ranks" in sys.argv:
    for number in range(3):
        threading.Thread(target=threading.Event().wait, name=f"loader-{number}", daemon=True).start()
    train(7)
    sys.exit()

# One processor for all of its threads: to wake gloo's on another one takes longer, and by more or less, than what is
# measured here.
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
try:
    import torch
    import torch.distributed as dist
except ImportError:
    sys.exit("torch")

torch.set_num_threads(1)
kept = []
large = torch.ones(16 << 20)  # 64 MiB
weight = torch.zeros(64)


def collectives(calls):
    """Seconds of the processor that one takes, and to wait for it, in this thread."""
    begun = time.thread_time()
    for _ in range(calls):
        dist.all_reduce(weight, async_op=True).wait()
    return (time.thread_time() - begun) / calls


def changes(calls):
    begun = time.thread_time()
    for _ in range(calls):
        weight.add_(1)
    return (time.thread_time() - begun) / calls


def keep(count):
    kept.extend(torch.zeros(2, 3) for _ in range(count))
    return len(kept)


def counter():
    """Where PyTorch counts what changes `weight` in place: the word whose target grows by one."""
    with open("/proc/self/mem", "rb", 0) as memory:
        def words(address, count):
            try:
                memory.seek(address)
                return struct.unpack(f"<{count}Q", memory.read(8 * count))
            except (OSError, OverflowError, struct.error, ValueError):
                return ()
        implementation = words(id(weight), 4)[3]

        def targets():
            return [words(pointer + 24, 1) for pointer in words(implementation, 40)]
        before = targets()
        weight.add_(1)
        grown = [number for number, (then, now) in enumerate(zip(before, targets()))
                 if then and now and now[0] & 0xffffffff == (then[0] & 0xffffffff) + 1]
        return words(implementation, 40)[grown[0]] + 24


dist.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
os._exit(0)
