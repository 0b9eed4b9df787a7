"""What is lost while many hosts are asked, and whether the answers say so: for tests/scale and its case."""
import random
import re
import threading
import time

from interpreters import patience

LIMIT = 8     # seconds for which a host is waited for, on an idle machine
CONNECT = 30  # those of ssh, and of starting it


def ranks_of(text):
    """{n} of "0-3,5"."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def lose(hosts, rounds, seed):
    """In each round one of: a host, a daemon, a rank. Then what was lost is there again."""
    dice = random.Random(seed)
    for number in range(rounds):
        host = dice.choice(hosts.all)
        rank = dice.randrange((host.number - 1) * hosts.local, host.number * hosts.local)
        deed = dice.choice(["host", "daemon", "rank"])
        command = dice.choice([["backtrace"], ["query", "SELECT rank FROM process"], ["eval", "rank"],
                               ["cat", "all/collectives"], ["write", "all/breakpoints", ""],
                               ["write", "all/ctl", "status"]])
        delay = dice.random() * 1.5

        def do():
            time.sleep(delay)
            {"host": host.kill, "daemon": host.kill_daemon, "rank": lambda: host.kill_rank(rank)}[deed]()
        doing = threading.Thread(target=do)
        begun = time.monotonic()
        doing.start()
        said = hosts.across(*command, timeout=LIMIT)
        took = time.monotonic() - begun
        doing.join()
        judge(hosts, host, rank, deed, command, said)
        assert took < patience(LIMIT + CONNECT), (deed, command, took)
        who = rank if deed == "rank" else host.name
        named = "named" if f"across: {host.name}: " in said.stderr else "not named" if deed != "rank" else ""
        print(f"  lost {deed} {who} after {delay:.1f} s of {command[0]}: {took:.1f} s {named}", flush=True)
        host.kill()
        host.start()
        host.wait()
        hosts.wait_for_ranks()


def judge(hosts, host, rank, deed, command, said):
    """Nobody else is said to be missing; whoever was lost in time is, and what remains is whole."""
    named = set(re.findall(r"^across: (\S+): ", said.stderr, re.M))
    assert named <= {host.name}, (deed, command, said)
    assert said.returncode == bool(named), said
    own = set(range((host.number - 1) * hosts.local, host.number * hosts.local))
    there = set(range(hosts.world))
    if command[0] == "backtrace":
        line = re.search(r"^Job \S+: ranks (\S+) of \d+(?:, missing: (\S+))?$", said.stdout, re.M)
        seen, gone = ranks_of(line[1]), ranks_of(line[2]) if line[2] else set()
        assert seen | gone == there and not seen & gone, line[0]
        assert gone <= (own if deed != "rank" else {rank}), line[0]
        assert named <= {host.name} and (not named or gone == own), said
    elif command[0] == "query":
        seen = {int(row) for row in said.stdout.split()[1:]}
        assert there - seen == own if named else there - seen <= (own if deed != "rank" else {rank}), said
    elif command[0] == "eval":
        seen = set().union(*(ranks_of(who) for who in re.findall(r"^ranks? (\S+) \(\d+\):", said.stdout, re.M)))
        assert there - seen == own if named else there - seen <= (own if deed != "rank" else {rank}), said
