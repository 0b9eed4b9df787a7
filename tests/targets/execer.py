"""execer.py [COUNT]: replaces itself by itself again and again, now and then by a shell between;
ends when its parent does."""
import os
import sys
import threading

count = int(sys.argv[1]) if len(sys.argv) > 1 else 0
parent = int(sys.argv[2]) if len(sys.argv) > 2 else os.getppid()
if count == 0:
    print("ready", flush=True)
if os.getppid() != parent:
    sys.exit()
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
again = [sys.executable, "-S", os.path.abspath(__file__), str(count + 1), str(parent)]
if count % 3 == 2:
    os.execv("/bin/sh", ["sh", "-c", 'exec "$@"', "sh", *again])
os.execv(sys.executable, again)
