"""self_reader.py MOUNT [THREADS] [ROUNDS]: reads its own directory through the mount, from many
threads at once, and prints the last backtrace as JSON."""
import json
import os
import sys
import threading

mount = sys.argv[1]
threads = int(sys.argv[2]) if len(sys.argv) > 2 else 1
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
said = [None] * threads
failed = []


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def look(i):
    try:
        for _ in range(rounds):
            said[i] = read(os.path.join(mount, "self", "backtrace"))
            read(os.path.join(mount, "self", "stacks.folded"))
            read(os.path.join(mount, "self", "status"))
    except OSError as error:
        failed.append(str(error))


print("ready", flush=True)
sys.stdin.readline()
others = [threading.Thread(target=look, args=(i,), name=f"reader-{i}") for i in range(1, threads)]
for thread in others:
    thread.start()
look(0)
for thread in others:
    thread.join()
print(json.dumps({"failed": failed, "said": said}), flush=True)
sys.stdin.readline()
