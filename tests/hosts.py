"""Hosts that are namespaces of this machine: each has its own network, processes, mounts and name, an sshd, a daemon
and some ranks of one job. Wants root.

A process without a name holds the network that they are all at (`Hosts.head`); what asks them runs there.
"""
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from interpreters import eventually, patience
from mount import REPOSITORY, build
from servers import program

NETWORK = "10.77"

# Whose rank is BAD does something else than the others.
RANK = """
import os, sys, time
rank, bad = int(os.environ["RANK"]), int(sys.argv[1])
def decode():
    time.sleep(100000)
def all_reduce():
    time.sleep(100000)
def train(step):
    decode() if rank == bad else all_reduce()
train(step=7)
"""

# DIRECTORY NUMBER PROBEFS SSHD PYTHON LOCAL WORLD PORT BAD; its network comes when a line is read
HOST = """
set -e
read -r _
hostname "h$2"
ip link set lo up
ip addr add "NETWORK.$(($2 / 250)).$(($2 % 250 + 1))/16" dev eth0
ip link set eth0 up
mount -t tmpfs none /run
mkdir /run/sshd
for file in passwd shadow; do mount --bind "$1/$file" "/etc/$file"; done
"$3" -f "$1/probe" </dev/null >/dev/null 2>&1 &
echo $! >/run/probefs.pid
local=0
while [ $local -lt "$6" ]; do
    RANK=$((($2 - 1) * $6 + local)) LOCAL_RANK=$local LOCAL_WORLD_SIZE=$6 WORLD_SIZE=$7 MASTER_ADDR=h1 MASTER_PORT=$8 \\
        "$5" "$1/rank.py" "$9" &
    local=$((local + 1))
done
"$4" -D -f "$1/sshd_config" </dev/null >/dev/null 2>&1 &
echo ready
exec cat
"""


class Host:
    def __init__(self, hosts, number):
        self.hosts, self.number, self.name = hosts, number, f"h{number}"
        self.start()

    def start(self):
        hosts = self.hosts
        script = HOST.replace("NETWORK", NETWORK)
        self.process = subprocess.Popen(
            ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc",
             "sh", "-c", script, self.name, str(hosts.directory), str(self.number), str(build() / "fs" / "probefs"),
             hosts.sshd, hosts.python, str(hosts.local), str(hosts.world), str(hosts.port), str(hosts.bad)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=hosts.log, start_new_session=True)
        pid, wire = self.process.pid, f"v{self.number}"
        eventually(lambda: os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"), what="its network")
        hosts.at_head("sh", "-c", f"ip link del {wire} 2>/dev/null; ip link add {wire} type veth peer name eth0 "
                      f"netns {pid} && ip link set {wire} master br0 up")
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def wait(self):
        """Until it is up."""
        said = self.process.stdout.readline()
        assert said == b"ready\n", (self.name, hosts_log(self.hosts))

    def inside(self, *command):
        """Runs it there."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as children:
            first = children.read().split()[0]
        return subprocess.run(["nsenter", "-t", first, "-m", "-p", "-n", "-u", *map(str, command)], capture_output=True,
                              text=True, timeout=patience(60))

    def kill_daemon(self):
        self.inside("sh", "-c", "kill -9 $(cat /run/probefs.pid)")

    def kill_rank(self, rank):
        self.inside("sh", "-c", 'kill -9 $(basename "$(readlink "$1")")', "sh",
                    self.hosts.mount / "by-rank" / str(rank))

    def kill(self):
        """As if its power failed."""
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(patience(30))
            for stream in self.process.stdin, self.process.stdout:
                stream.close()


def hosts_log(hosts):
    hosts.log.flush()
    return pathlib.Path(hosts.log.name).read_text(errors="replace")[-3000:]


class Hosts:
    """n of them, each with so many ranks; python: an executable that has no root of its own; bad: the rank that is
    elsewhere."""

    def __init__(self, n, local, python=sys.executable, bad=None):
        self.n, self.local, self.world, self.python = n, local, n * local, python
        self.bad = self.world // 3 if bad is None else bad
        self.port = random.randrange(10**4, 6 * 10**4)
        self.sshd = program("sshd")
        self.all, self.holder = [], None
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="probefs-hosts-"))
        self.mount = self.directory / "probe"
        self.log = open(self.directory / "log", "w+")
        try:
            self._configure()
            self._hold_network()
            self.all = [Host(self, number) for number in range(1, n + 1)]
            for host in self.all:
                host.wait()
        except BaseException:
            self.close()
            raise

    def _configure(self):
        here = self.directory
        here.chmod(0o755)
        self.mount.mkdir()
        (here / "rank.py").write_text(RANK)
        (here / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
                                     "nobody:x:65534:65534::/:/usr/sbin/nologin\n")
        (here / "shadow").write_text("root:*:19000:0:99999:7:::\n")
        for key in "key", "host_key":
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", here / key], check=True)
        shutil.copyfile(here / "key.pub", here / "authorized_keys")
        (here / "sshd_config").write_text(
            f"HostKey {here}/host_key\nAuthorizedKeysFile {here}/authorized_keys\nStrictModes no\nPermitRootLogin yes\n"
            "UsePAM no\nPidFile none\nMaxStartups 100\n")
        names = "".join(f"Host h{n}\n HostName {NETWORK}.{n // 250}.{n % 250 + 1}\n" for n in range(1, self.n + 1))
        (here / "ssh_config").write_text(
            f"{names}Host *\n User root\n IdentityFile {here}/key\n IdentitiesOnly yes\n StrictHostKeyChecking no\n"
            " UserKnownHostsFile /dev/null\n LogLevel ERROR\n ConnectTimeout 5\n BatchMode yes\n")

    def _hold_network(self):
        script = ("ip link set lo up && ip link add br0 type bridge && "
                  f"ip addr add {NETWORK}.255.254/16 dev br0 && ip link set br0 up && echo ready && exec cat")
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=self.log)
        assert self.holder.stdout.readline() == b"ready\n", hosts_log(self)

    def at_head(self, *command, check=True, **options):
        return subprocess.run(["nsenter", "-t", str(self.holder.pid), "-n", *map(str, command)], check=check,
                              stdin=subprocess.DEVNULL, **options)

    @property
    def names(self):
        return f"h[1-{self.n}]"

    def wait_for_ranks(self):
        """Until all of all hosts are seen there, where they stand in the end."""
        stand = re.compile(rf": ranks 0-{self.world - 1} of {self.world}\n\n"
                           rf"rank {self.bad} \(1\): .*\n.* decode .*\n(.*\n)*\nranks \S+ \({self.world - 1}\): ")
        eventually(lambda: stand.search(self.across("backtrace").stdout), 120, "all ranks")

    def engine(self, name="clush"):
        """For across -e, and the environment that goes with it."""
        config = self.directory / "ssh_config"
        if name == "pdsh":
            return "pdsh -R ssh", {"PDSH_SSH_ARGS_APPEND": f"-F {config}"}
        return f"clush -O 'ssh_options=-F {config}'", {}

    def across(self, *args, engine="clush", timeout=60):
        """What it said. timeout: seconds that an idle machine gives a host."""
        command, env = self.engine(engine)
        timeout = int(patience(timeout))
        return self.at_head(sys.executable, REPOSITORY / "contrib" / "across", "-e", command, "-w", self.names, "-m",
                            self.mount, "-t", timeout, *args, check=False, capture_output=True, text=True,
                            timeout=3 * timeout, env={**os.environ, **env})

    def close(self):
        for host in self.all:
            host.kill()
        if self.holder:
            self.holder.kill()
            self.holder.wait()
            for stream in self.holder.stdin, self.holder.stdout:
                stream.close()
        self.log.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(self.directory)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
