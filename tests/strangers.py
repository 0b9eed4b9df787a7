"""Callers and targets with credentials at random: what the mount lets each caller do with each target, beside what
the kernel lets the same caller do. The mount may allow less, never more.

Looking is what takes PTRACE_MODE_READ_FSCREDS, /proc/PID/cwd; acting what takes PTRACE_MODE_ATTACH_REALCREDS,
process_vm_readv(2), or pidfd_getfd(2) from a pid namespace where the target has no pid. Open files go from one caller
to the next: a write must be allowed to both. What is read of all/query may name no process that who reads it may
not look at."""
import collections
import ctypes
import errno
import json
import os
import random
import re
import signal
import socket
import time

from interpreters import patience
from mount import Probe

IDS = [0, 1234, 1235, 65534]
GROUPS = [[], [1235], [0, 4321]]
CAPABILITIES = [0, 0, 0, 1 << 19, (1 << 41) - 1, ((1 << 41) - 1) & ~(1 << 19), 1 << 13, 1 << 1 | 1 << 21]
TARGETS = 12
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
PIDFD_GETFD = 438
PR_SET_DUMPABLE, PR_CAP_AMBIENT, PR_SET_KEEPCAPS, PR_SET_PDEATHSIG = 4, 47, 8, 1
SLEEPS = "import sys; sys.stdin.read()"
DEADLINE = 60  # seconds for one caller

libc = ctypes.CDLL(None, use_errno=True)



def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


# ---- becoming somebody ----

def anybody(chance):
    """Credentials, as a dict. Most ids are all the same: others may do little."""
    uid, gid = chance.choice(IDS), chance.choice(IDS)
    uids, gids = [uid] * 4, [gid] * 4
    if chance.random() < 0.25:
        uids = [chance.choice(IDS) for _ in range(4)]
    if chance.random() < 0.15:
        gids = [chance.choice(IDS) for _ in range(4)]
    return {"uid": uids, "gid": gids, "groups": chance.choice(GROUPS),
            "effective": chance.choice(CAPABILITIES), "more": chance.choice([0, 0, 0, *CAPABILITIES]),
            "ambient": chance.random() < 0.3,
            "ns": chance.choice([None, None, None, "all", "one", "nested"]), "owner": chance.choice(IDS),
            "pidns": chance.random() < 0.15, "dumpable": chance.random() < 0.7, "executes": chance.random() < 0.4}


def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def enter_namespaces(who, ask):
    """ask(): has the parent, who may, write the maps of this process."""
    if who["ns"]:
        if who["ns"] == "one":
            libc.setresgid(who["gid"][0], who["gid"][0], who["gid"][0])
        check(libc.setresuid(-1, who["owner"], -1))
        check(libc.unshare(CLONE_NEWUSER))
        libc.prctl(PR_SET_DUMPABLE, 1)
        ask()
        if who["ns"] == "nested":
            uid, gid = os.geteuid(), os.getegid()
            check(libc.unshare(CLONE_NEWUSER))
            write("/proc/self/setgroups", "deny")
            write("/proc/self/uid_map", f"0 {uid} 1")
            write("/proc/self/gid_map", f"0 {gid} 1")
    if who["pidns"]:
        check(libc.unshare(CLONE_NEWPID))  # of the children, of which this has one
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            os._exit(0)


def set_capabilities(effective, permitted):
    data = b"".join(((effective >> shift) & 0xffffffff).to_bytes(4, "little")
                    + ((permitted >> shift) & 0xffffffff).to_bytes(4, "little")
                    + ((permitted >> shift) & 0xffffffff).to_bytes(4, "little") for shift in (0, 32))
    return libc.capset((0x20080522).to_bytes(4, "little") + bytes(4), data)


def become(who, ask):
    """As far as it goes: ids that a namespace doesn't have can't be taken on."""
    enter_namespaces(who, ask)
    try:
        os.setgroups(who["groups"])
    except OSError:
        pass
    libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    libc.setresgid(*who["gid"][:3])
    libc.setfsgid(who["gid"][3])
    libc.setresuid(*who["uid"][:3])
    libc.setfsuid(who["uid"][3])
    effective = who["effective"]
    set_capabilities(effective, effective | who["more"])
    if who["ambient"]:
        for number in range(41):
            if (effective | who["more"]) >> number & 1:
                libc.prctl(PR_CAP_AMBIENT, 2, number, 0, 0)
    libc.prctl(PR_SET_DUMPABLE, int(who["dumpable"]), 0, 0, 0)


class Child:
    """A fork of this program that has become somebody, and then runs work(pipe); what that writes is read here. The
    work is done by a child of it where it is in a pid namespace of its own."""

    def __init__(self, who, work):
        self.who = who
        ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                ours.close()

                def ask():
                    theirs.send(b"m")
                    theirs.recv(1)

                become(who, ask)
                work(theirs)
                status = 0
            except BaseException as error:  # noqa: B036 this is a fork: nothing may go on above
                os.write(2, f"{who}: {error!r}\n".encode())
            finally:
                os._exit(status)
        theirs.close()
        self.pipe = ours
        self.pipe.settimeout(patience(DEADLINE))
        if who["ns"]:
            if self.pipe.recv(1) == b"m":
                self._map()
                self.pipe.send(b"m")

    def _map(self):
        who = self.who
        everything = who["ns"] != "one"
        write(f"/proc/{self.pid}/uid_map", "0 0 4294967295" if everything else f"0 {who['owner']} 1")
        write(f"/proc/{self.pid}/gid_map", "0 0 4294967295" if everything else f"0 {who['gid'][0]} 1")

    def read(self):
        """All that it says until its end."""
        said = b""
        while got := self.pipe.recv(1 << 16):
            said += got
        return said

    def end(self):
        self.pipe.close()
        children = []
        try:
            with open(f"/proc/{self.pid}/task/{self.pid}/children") as file:
                children = [int(pid) for pid in file.read().split()]
        except OSError:
            pass
        for pid in (*children, self.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.waitpid(self.pid, 0)


# ---- targets ----

class Target(Child):
    """A Python process that does nothing."""

    def __init__(self, who):
        def work(pipe):
            pipe.send(str(os.readlink("/proc/self")).encode() + b"\n")
            if who["executes"]:
                os.dup2(pipe.fileno(), 0)
                os.execv("/usr/bin/python3", ["python3", "-S", "-E", "-c", SLEEPS])
            pipe.recv(1)

        super().__init__(who, work)
        self.number = int(self.pipe.recv(100))  # its pid as this program sees it
        self.pidfd = os.pidfd_open(self.number)
        # an address that can be read in it, which is the same in a fork, and else that of its stack
        self.address = ctypes.addressof(ctypes.c_char.in_dll(libc, "environ"))

    def ready(self):
        """Once it has executed: else a caller would meet two programs."""
        if not self.who["executes"]:
            return True
        try:
            return b"-S" in open(f"/proc/{self.number}/cmdline", "rb").read()
        except OSError:
            return True

    def end(self):
        os.close(self.pidfd)
        super().end()

    def find_address(self):
        for line in open(f"/proc/{self.number}/maps"):
            if "[stack]" in line:
                self.address = int(line.partition("-")[2].split()[0], 16) - 64
        return self.address


# ---- callers ----

def succeeds(function, *arguments):
    try:
        function(*arguments)
        return True
    except OSError:
        return False


def read(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)


def kernel_lets_look(pid):
    return succeeds(os.readlink, f"/proc/{pid}/cwd")


def kernel_lets_act(pid, address, pidfd, pidns):
    if pidns:
        fd = libc.syscall(PIDFD_GETFD, pidfd, 0, 0)
        if fd >= 0:
            os.close(fd)
        return fd >= 0 or ctypes.get_errno() != errno.EPERM
    there = ctypes.create_string_buffer(1)
    local, remote = iovec(ctypes.addressof(there), 1), iovec(address, 1)
    return libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) == 1


def open_to_write(path):
    return os.open(path, os.O_WRONLY)


def pids_in(text):
    return [int(line) for line in text.decode(errors="replace").splitlines() if re.fullmatch(r"\d+", line)]


def try_all(who, mount, targets, files, asks):
    """What one caller may do with each: [[pid, kernel looks, probefs looks, kernel acts, probefs acts, file]], file:
    whether it can write to what another opened, None where there is none; the pids that it saw in all/query; and
    what it opened."""
    rows, opened = [], {}
    for number, address, pidfd in targets:
        top = f"{mount}/{number}"
        looks = succeeds(read, f"{top}/status")
        acts = succeeds(lambda: opened.__setitem__(number, open_to_write(f"{top}/ctl")))
        wrote = None
        if number in files:
            wrote = succeeds(os.write, files[number], b"interpreter 0\n")
        rows.append([number, kernel_lets_look(number), looks, kernel_lets_act(number, address, pidfd, who["pidns"]),
                     acts, wrote])
    seen = set()
    everybody = f"{mount}/all/query"
    for _ in range(2):
        try:
            seen.update(pids_in(read(everybody)))
        except OSError:
            pass
        if not asks:
            break
        try:
            fd = os.open(everybody, os.O_WRONLY)
            try:
                os.write(fd, b"SELECT DISTINCT pid FROM python.threads;\n")
            finally:
                os.close(fd)
        except OSError:
            pass
    return rows, sorted(seen), opened


class Caller(Child):
    def __init__(self, who, mount, targets, files, asks):
        def work(pipe):
            rows, seen, opened = try_all(who, mount, targets, files, asks)
            said = json.dumps([rows, seen, list(opened)]).encode()
            socket.send_fds(pipe, [len(said).to_bytes(4, "little")], list(opened.values()))
            pipe.sendall(said)
            pipe.recv(1)

        super().__init__(who, work)

    def answer(self):
        """rows, seen, {pid: descriptor}."""
        size, fds, _, _ = socket.recv_fds(self.pipe, 4, TARGETS)
        if len(size) < 4:
            return None
        said = b""
        while len(said) < int.from_bytes(size, "little"):
            said += self.pipe.recv(1 << 16)
        rows, seen, numbers = json.loads(said)
        return rows, seen, dict(zip(numbers, fds))


# ---- judging ----

class Tally:
    def __init__(self):
        self.counts = collections.Counter()
        self.more = []

    def judge(self, caller, targets, rows, seen, openers):
        who = {target.number: target.who for target in targets}
        for number, kernel_looks, looks, kernel_acts, acts, wrote in rows:
            self.counts["tries"] += 1
            for what, allowed, kernel in (("look", looks, kernel_looks), ("act", acts, kernel_acts and kernel_looks)):
                self.counts[f"{what}: {'both allow' if allowed and kernel else 'both refuse'}"] += allowed == kernel
                self.counts[f"{what}: less than the kernel"] += kernel and not allowed
                if allowed and not kernel:
                    self.more.append(f"{what}: {caller.who} at {who[number]}")
            if wrote is not None:
                self.counts["write into another's open file: " + ("allowed" if wrote else "refused")] += 1
                if wrote and not (kernel_acts and kernel_looks and openers[number]):
                    self.more.append(f"write into another's open file: {caller.who} at {who[number]}")
        looked = {row[0] for row in rows if row[1]}
        known = {row[0] for row in rows}
        self.counts["rows of all/query"] += len(seen)
        for number in set(seen) & known - looked:
            self.more.append(f"all/query: {caller.who} saw {who[number]}")


def close_all(files):
    for fd in files.values():
        os.close(fd)
    files.clear()


def limit_of(text):
    """(seconds, tries), one of them without bound."""
    if text.endswith("s"):
        return float(text[:-1]), float("inf")
    return float("inf"), float(text)


def attack(limit, seed):
    seconds, tries = limit_of(limit)
    seed = random.SystemRandom().randrange(1 << 32) if seed is None else seed
    chance = random.Random(seed)
    tally, targets, files, openers = Tally(), [], {}, {}
    end = time.monotonic() + seconds
    print(f"seed {seed}", flush=True)
    with Probe("allow_other", "hidepid=0") as mount:
        while time.monotonic() < end and tally.counts["tries"] < tries and not tally.more:
            round_of_callers(chance, mount, targets, files, openers, tally)
        close_all(files)
        for target in targets:
            target.end()
        assert mount.alive(), mount.log()
    for name, count in sorted(tally.counts.items()):
        print(f"{count:>8} {name}")
    for words in tally.more:
        print(f"MORE THAN THE KERNEL: {words}")
    print(f"{len(tally.more)} allowed more than the kernel")
    return 1 if tally.more else 0


def renew(chance, targets, files):
    """A few of the targets are others from now on."""
    for target in [t for t in targets if chance.random() < 0.3]:
        targets.remove(target)
        fd = files.pop(target.number, None)
        if fd is not None:
            os.close(fd)
        target.end()
    while len(targets) < TARGETS:
        try:
            target = Target(anybody(chance))
        except (OSError, ValueError):
            continue
        end = time.monotonic() + patience(DEADLINE)
        while not target.ready():
            assert time.monotonic() < end, "a target didn't start"
            time.sleep(0.001)
        target.find_address()
        targets.append(target)


def round_of_callers(chance, mount, targets, files, openers, tally):
    renew(chance, targets, files)
    for _ in range(8):
        who = anybody(chance)
        try:
            caller = Caller(who, mount.path, [(t.number, t.address, t.pidfd) for t in targets], files,
                            chance.random() < 0.1)
        except OSError:
            continue
        answer = caller.answer()
        if answer:
            rows, seen, opened = answer
            tally.judge(caller, targets, rows, seen, openers)
            close_all(files)
            files.update(opened)
            openers.clear()
            openers.update((row[0], row[1] and row[3]) for row in rows)
        caller.end()
