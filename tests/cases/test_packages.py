"""The packages, made and tried where nothing else of probefs is. To make them compiles all twice: in tests/run --full
alone."""
import os
import re
import shutil
import subprocess
import sys
import urllib.request

import pytest

import mount as daemon
from interpreters import CACHE, eventually, patience

if os.environ.get("PROBEFS_TEST_FULL") != "1":
    pytest.skip("packages are made and tried by tests/run --full alone", allow_module_level=True)

pytestmark = [pytest.mark.long, pytest.mark.deadline(3600)]
PACKAGE = daemon.REPOSITORY / "contrib" / "packaging" / "package"
MIRROR = os.environ.get("PROBEFS_DEBIAN_MIRROR", "http://deb.debian.org/debian")
LOOP = "import time\ndef work(n):\n    while True:\n        time.sleep(0.01)\nprint('ready', flush=True)\nwork(5)\n"
TRIED = """#!/bin/sh
# what the unit's daemon does, written down for the test
exec >/tried 2>&1
systemctl is-active probefs
setpriv --reuid nobody --regid nogroup --clear-groups python3 /loop.py >/dev/null & pid=$!
until grep -q work /probe/$pid/backtrace; do sleep 0.1; done
grep -m 1 work /probe/$pid/backtrace
probing $pid eval '6 * 7'
probing $pid profile cpu 97hz >/dev/null
grep ^Source: /probe/$pid/profile/status
setpriv --reuid nobody --regid nogroup --clear-groups probing $pid eval '6 * 8'
systemctl kill -s KILL probefs
until mountpoint -q /probe && ls /probe >/dev/null; do sleep 0.1; done
journalctl -u probefs | grep -o 'removed the mount of a probefs that had died'
systemctl stop probefs
mountpoint /probe
mkdir /mnt/p
echo 'probefs /mnt/p fuse.probefs allow_other,noauto 0 0' >>/etc/fstab
systemctl daemon-reload
systemctl start mnt-p.mount && grep -m 1 work /mnt/p/$pid/backtrace
systemctl stop mnt-p.mount
mountpoint /mnt/p
systemctl poweroff
"""
UNIT = "[Unit]\nAfter=multi-user.target\n[Service]\nExecStart=/try\n"


def made(kind, directory):
    said = subprocess.run([PACKAGE, kind, directory], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, "CC": "ccache gcc" if shutil.which("ccache") else "gcc"})
    if " is missing; as root: " in said.stderr:
        pytest.skip(said.stderr.strip())
    assert said.returncode == 0, said.stdout[-2000:] + said.stderr
    return sorted(path for path in directory.iterdir() if "dbgsym" not in path.name)


@pytest.fixture(scope="module")
def debs(tmp_path_factory):
    assert shutil.which("lintian"), "lintian is not installed"  # which makes what it finds an error
    return made("deb", tmp_path_factory.mktemp("deb"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return made("wheel", tmp_path_factory.mktemp("wheel"))[0]


def base(suite):
    """A Debian that is kept, and never written to."""
    root = CACHE / suite
    if not root.exists():
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            pytest.skip(f"no Debian {suite}: making it needs root and debootstrap")
        part = CACHE / f"{suite}.part"
        shutil.rmtree(part, ignore_errors=True)
        said = subprocess.run(["debootstrap", "--variant=minbase", suite, part, MIRROR], capture_output=True, text=True)
        if said.returncode:
            pytest.skip(f"no Debian {suite}: {said.stdout.splitlines()[-1]}")
        part.rename(root)
    return root


class Root:
    """A Debian of its own, over one that is kept: what is written to it goes with it."""

    def __init__(self, suite, directory):
        self.path = directory / "root"
        over = directory / "over"
        self.path.mkdir()
        over.mkdir()
        lower = base(suite)
        self.mounts = []
        self.mount("-t", "tmpfs", "tmpfs", over)
        (over / "upper").mkdir()
        (over / "work").mkdir()
        self.mount("-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={over}/upper,workdir={over}/work",
                   self.path)
        self.mount("-t", "proc", "proc", self.path / "proc")
        self.mount("--rbind", "/dev", self.path / "dev")
        shutil.copy("/etc/resolv.conf", self.path / "etc")
        (self.path / "loop.py").write_text(LOOP)
        (self.path / "probe").mkdir(exist_ok=True)
        self.run("apt-get", "-o", "Acquire::Check-Valid-Until=no", "update")  # a mirror may be an old one

    def mount(self, *arguments):
        subprocess.run(["mount", *arguments], check=True)
        self.mounts.append(arguments[-1])

    def popen(self, *command, environment={}, **more):
        return subprocess.Popen(["chroot", self.path, *map(str, command)], text=True, stdin=subprocess.DEVNULL, cwd="/",
                                stdout=subprocess.PIPE, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                                                             "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
                                                             **environment}, **more)

    def run(self, *command):
        process = self.popen(*command, stderr=subprocess.PIPE)
        said, error = process.communicate()
        assert process.returncode == 0, (command, said[-2000:], error)
        return said

    def install(self, *packages):
        self.run("apt-get", "install", "-y", "--no-install-recommends", *packages)

    def add(self, *files):
        for file in files:
            shutil.copy(file, self.path)
        return [f"/{file.name}" for file in files]

    def close(self):
        for mounted in reversed(self.mounts):
            subprocess.run(["umount", "-l", mounted], check=True)


@pytest.fixture
def root(request, tmp_path):
    opened = Root(request.param, tmp_path)
    try:
        yield opened
    finally:
        opened.close()


def doors_open(root, programs, python="python3"):
    """The daemon and each program over its files do something there."""
    root.run(f"{programs}/probefs", "/probe")
    target = root.popen(python, "/loop.py")
    invited = root.popen(python, "/loop.py", environment={"PROBING": "1"})
    web = root.popen(f"{programs}/probefs-web", "--as-root", "--listen", "0")
    try:
        assert target.stdout.readline() == invited.stdout.readline() == "ready\n"
        files = root.path / "probe" / str(target.pid)
        eventually(lambda: "work (/loop.py:4)" in (files / "backtrace").read_text(), what="the stack")
        eventually(lambda: (files.parent / str(invited.pid) / "ctl").read_text().startswith("Agent: running"),
                   what="its agent")
        assert (files / "ctl").read_text().startswith("Agent: none")
        assert root.run(f"{programs}/probing", target.pid, "eval", "6 * 7") == "42\n"
        assert root.run(f"{programs}/probefs-pdb", "-c", "p n", "-c", "q", target.pid).endswith("\n5\n")
        assert "usage: across" in root.run(f"{programs}/across", "--help")
        link, _, token = web.stdout.readline().strip().partition("/#token=")
        asked = urllib.request.Request(f"{link}/probe/{target.pid}/status",
                                       headers={"Authorization": f"Bearer {token}"})
        assert urllib.request.urlopen(asked, timeout=patience(30)).read().startswith(b"Pid: ")
    finally:
        for process in target, invited, web:
            process.kill()
            process.communicate()
        subprocess.run(["umount", root.path / "probe"], check=True)


@pytest.mark.parametrize("root", ["bookworm"], indirect=True)
def test_debian_packages(root, debs):
    tried(root, debs)


@pytest.mark.parametrize("root", ["sid"], indirect=True)
def test_debian_packages_of_sid(root, tmp_path):
    """Made there: by its compiler, of its libraries."""
    control = (daemon.REPOSITORY / "contrib" / "packaging" / "debian" / "control").read_text()
    wanted = re.search("^Build-Depends: (.*?)^[A-Z]", control, re.M | re.S)[1]
    root.install("git", "build-essential", "debhelper", *re.findall(r"^ *([a-z0-9-]+)(?: \([^)]*\))?,?$", wanted, re.M))
    (root.path / "debs").mkdir()
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "-q", "--no-local", daemon.REPOSITORY,
                    root.path / "source"], check=True)
    root.run("/source/contrib/packaging/package", "deb", "/debs")
    tried(root, sorted(path for path in (root.path / "debs").iterdir() if "dbgsym" not in path.name))


def tried(root, debs):
    """They install, all that they have works, and nothing stays when they are purged."""
    root.install(*root.add(*debs))
    assert os.path.islink(root.path / "etc/systemd/system/multi-user.target.wants/probefs.service")
    doors_open(root, "/usr/bin")
    root.run("dpkg", "--purge", "probefs-tools", "python3-probing", "probefs")
    left = [path for place in ("etc", "usr", "lib", "var/lib") for path in (root.path / place).rglob("*prob*")
            if re.search(r"prob(efs|ing)", path.name) and "dpkg" not in str(path)]
    assert not left


@pytest.mark.parametrize("root", ["bookworm", "sid"], indirect=True)
def test_wheel_in_debian(root, wheel):
    """Where there is neither a compiler nor a library of those that it is made with."""
    root.install("python3-venv")
    root.run("python3", "-m", "venv", "/venv")
    root.run("/venv/bin/pip", "install", "--no-index", *root.add(wheel))
    doors_open(root, "/venv/bin", "/venv/bin/python3")
    for file in "man/man5/probefs.5", "probefs/flamegraph.html":
        assert (root.path / "venv/share" / file).exists()


def installed(python, directory, what):
    """The programs of a virtual environment that has it."""
    subprocess.run([python, "-m", "venv", directory], check=True, capture_output=True)
    said = subprocess.run([directory / "bin" / "pip", "install", *what], capture_output=True, text=True,
                          env={**os.environ, "CC": "ccache gcc" if shutil.which("ccache") else "gcc"})
    return directory / "bin", said


def works(programs, mounted):
    """The daemon there shows a process of its interpreter that has invited it."""
    mounted.mkdir()
    subprocess.run([programs / "probefs", mounted], check=True)
    target = subprocess.Popen([programs / "python3", "-c", LOOP], stdout=subprocess.PIPE,
                              env={**os.environ, "PROBING": "1"})
    try:
        assert target.stdout.readline() == b"ready\n"
        eventually(lambda: (mounted / str(target.pid) / "ctl").read_text().startswith("Agent: running"),
                   what="its agent")
        said = subprocess.run([programs / "probing", str(target.pid), "eval", "6 * 7"], capture_output=True, text=True,
                              env={**os.environ, "PROBE": str(mounted)})
        assert said.stdout == "42\n", said
        assert subprocess.check_output([programs / "python3", "-c", "import probing; print(probing.__file__)"],
                                       text=True).startswith(str(programs.parent))
    finally:
        target.kill()
        target.communicate()
        subprocess.run(["umount", mounted], check=True)


@pytest.mark.python(minimum=(3, 10))
def test_wheel(python, wheel, tmp_path):
    if python.source != "pyenv":
        pytest.skip("in other roots: test_wheel_in_debian")
    programs, said = installed(python.executable, tmp_path / "venv", ["--no-index", wheel])
    assert said.returncode == 0, said.stderr
    works(programs, tmp_path / "mounted")


def test_sdist(tmp_path_factory, tmp_path):
    """By pip, with the meson-python that the package index has today."""
    sdist = made("sdist", tmp_path_factory.mktemp("sdist"))[0]
    programs, said = installed(sys.executable, tmp_path / "venv", [sdist])
    if re.search("No matching distribution found for meson-python", said.stderr):
        pytest.skip("there is no package index")
    assert said.returncode == 0, said.stdout[-2000:] + said.stderr
    works(programs, tmp_path / "mounted")


@pytest.mark.parametrize("root", ["bookworm"], indirect=True)
def test_under_systemd(root, debs):
    """A real one, in a container that filters no system calls; it ends by itself."""
    if not shutil.which("systemd-nspawn"):
        pytest.skip("systemd-nspawn is not installed (Debian: systemd-container)")
    root.install("systemd", "systemd-sysv", "dbus", "python3", *root.add(*debs))
    (root.path / "probe").rmdir()  # that is for tmpfiles
    (root.path / "try").write_text(TRIED)
    (root.path / "try").chmod(0o755)
    (root.path / "etc/systemd/system/try.service").write_text(UNIT)
    wanted = root.path / "etc/systemd/system/default.target.wants"
    wanted.mkdir(exist_ok=True)
    (wanted / "try.service").symlink_to("../try.service")
    boot = ("umount -l /sys/fs/cgroup \"$1/dev\" \"$1/proc\"; mount -t cgroup2 cgroup2 /sys/fs/cgroup && "
            "SYSTEMD_SECCOMP=0 SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 "
            "exec systemd-nspawn --quiet --boot --register=no --keep-unit --capability=all --bind=/dev/fuse "
            "--console=pipe "
            "--private-network --directory=\"$1\"")
    said = subprocess.run(["unshare", "--mount", "--cgroup", "sh", "-c", boot, "sh", root.path],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience(300))
    tried = root.path / "tried"
    assert tried.exists(), said
    assert tried.read_text().splitlines() == [
        "active", "  #2  work (/loop.py:4)", "42", "Source: bpf", "48", "removed the mount of a probefs that had died",
        "/probe is not a mountpoint", "  #2  work (/loop.py:4)", "/mnt/p is not a mountpoint"], tried.read_text()
