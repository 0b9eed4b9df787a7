"""The command: how it starts and ends, and what it says when something is wrong."""
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

import pytest

import mount as daemon
from interpreters import eventually, patience
from sql import SCHEMA

NOBODY = dict(user="nobody", group="nogroup", extra_groups=[])


@pytest.fixture
def directory():
    """An empty directory to mount on, cleaned whatever happened."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="probefs-mount-"))
    path.chmod(0o755)
    yield path
    while os.path.ismount(path) or dead(path):
        subprocess.run(["umount", "-l", path], check=True)
    eventually(lambda: not serving(path), what="the end of the daemons")
    for below in path.iterdir():
        below.rmdir() if below.is_dir() else below.unlink()
    path.rmdir()


def probefs(*args, under=(), **options):
    """Runs the command; it must return by itself within seconds."""
    return subprocess.run([*under, daemon.build() / "fs" / "probefs", *map(str, args)],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience(60),
                          **options)


def foreground(path, **options):
    process = subprocess.Popen([daemon.build() / "fs" / "probefs", "-f", path],
                               stdin=subprocess.DEVNULL, **options)
    eventually(lambda: os.path.ismount(path) or process.poll() is not None, what="the mount")
    assert process.poll() is None
    return process


def words_of(entry):
    """The command line of a /proc/PID, or nothing."""
    try:
        return (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def serving(path):
    """The pids of the daemons that were told to mount at path."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        words = words_of(entry)
        if words[0].endswith(b"/probefs") and os.fsencode(path) in words:
            found.append(int(entry.name))
    return found


def dead(path):
    try:
        os.stat(path)
    except OSError as error:
        return error.strerror == "Transport endpoint is not connected"
    return False


def refused(result, *words):
    assert result.returncode != 0
    for word in words:
        assert str(word) in result.stderr


def test_help_and_version():
    said = probefs("--help")
    assert said.returncode == 0 and said.stderr == ""
    assert "allow_other" in said.stdout and "hidepid" in said.stdout
    assert probefs("-h").stdout == said.stdout
    said = probefs("--version")
    assert said.returncode == 0 and said.stdout.startswith("probefs ")


def checked(*under, **options):
    """What --check said, by name, and its exit status."""
    # who may not ptrace can't look for leaks
    said = probefs("--check", under=under, env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}, **options)
    assert said.stderr == "", said
    return dict(line.split(": ", 1) for line in said.stdout.splitlines()), said.returncode


def trying():
    """The pids of processes that a check has made, or that check."""
    return [pid for pid in pathlib.Path("/proc").glob("[0-9]*") if b"--check" in words_of(pid)]


def test_check():
    """All is well where tests can run, for root; and nothing is left of what was tried."""
    def on_root():
        return [line
                for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if line.split()[4] == "/"]
    before = on_root()
    said, status = checked()
    assert status == 0, said
    assert {said[name].split(",")[0] for name in ("Mount", "Read", "Act", "AllowOther")} == {"yes"}
    assert on_root() == before
    eventually(lambda: not trying(), what="the end of what was tried")
    assert probefs("--check", "/probe").returncode == 2


def test_check_of_what_is_refused():
    """Each thing that is taken away, by the kernel's own means, is said, with what to do; the status tells what is
    left."""
    if os.geteuid() != 0:
        pytest.skip("it wants root, to take things away")
    seccomp = daemon.REPOSITORY / "tests" / "seccomp-exec"
    said, status = checked(seccomp, "EPERM", "ptrace,perf_event_open")
    assert status == 3 and said["Read"] == "yes"
    for name in "Act", "Perf", "DebugRegisters":
        assert said[name].startswith("no: a seccomp filter refuses it; "), said
    said, status = checked(seccomp, "EPERM", "ptrace,process_vm_readv")
    assert status == 1 and said["Read"].startswith("no: a seccomp filter refuses it; ")
    said, status = checked("setpriv", "--bounding-set", "-all")
    assert status == 1 and "CAP_SYS_ADMIN" in said["Mount"]
    assert said["OtherUsers"].startswith("no: only those of uid 0; ") and "CAP_BPF" in said["Bpf"]
    own = "unshare", "--user", "--map-root-user"
    if subprocess.run([*own, "true"], capture_output=True).returncode == 0:
        said, status = checked(*own)
        assert status == 0 and "user namespace" in said["Namespaces"] and said["Bpf"].startswith("no: ")
    said, status = checked("unshare", "--mount", "bash", "-c", "mount -t tmpfs none /dev; exec \"$@\"", "bash")
    assert status == 1 and said["Mount"].startswith("no: there is no /dev/fuse; ")
    said, status = checked(**NOBODY)
    assert said["AllowOther"].startswith("no: ") or "user_allow_other" in said["AllowOther"]
    assert said["OtherUsers"].startswith(f"no: only those of uid {pwd.getpwnam('nobody').pw_uid}; ")


PAGES = {page: daemon.REPOSITORY / "contrib" / page for page in ("probefs.1", "probefs.5", "probing.1")}


def test_manual_of_the_command():
    """It says the same as --help."""
    page = PAGES["probefs.1"].read_text().replace("\\", "")
    for option in re.findall(r"^ {4}(-.*?)  ", probefs("--help").stdout, re.MULTILINE):
        for word in re.findall(r"--?[a-z_V]+|[a-z_]{3,}", option):
            assert word in page, word


def test_manual_of_the_files(probe):
    """It has every name of the tree, and every table."""
    page = PAGES["probefs.5"].read_text().replace("\\", "")
    tree = probe.read("help").split("\n\n")[1]
    for name in {*re.findall(r"^ +([\w.-]+)", tree, re.MULTILINE), *SCHEMA}:
        assert name in page, name


@pytest.mark.parametrize("page", PAGES)
def test_manual_page(page):
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    checked = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", PAGES[page]],
                             capture_output=True, text=True, env={**os.environ, "MANWIDTH": "80"})
    assert checked.stderr == ""


@pytest.mark.parametrize("args, word", [
    ([], "mount point"), (["/a", "/b"], "/b"), (["none", "a", "b"], "b"), (["--nonsense", "/a"], "--nonsense"),
    (["-o", "hidepid=7", "/a"], "hidepid")])
def test_bad_usage(args, word):
    result = probefs(*args)
    assert result.returncode == 2 and word in result.stderr


def privately(script, directory):
    """Runs a shell script as root in namespaces of its own, in which probefs is installed and with which all ends."""
    if os.geteuid() != 0 or not shutil.which("mount.fuse3"):
        pytest.skip("mount(8) wants root, and mount.fuse3(8) for what it mounts with FUSE")
    return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-e", "-c",
                           f"mount --bind {daemon.build() / 'fs'} /usr/local/bin; cd {directory}; {script}"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience(60))


SHOWN = "ls at; grep -F $PWD/at /proc/self/mountinfo; umount at"
OPTIONS = "defaults,allow_other,hidepid=1,noatime,relatime,nofail,noauto,_netdev,nosuid,x-systemd.automount,comment=x"


@pytest.mark.parametrize("command", [
    "mount -t fuse.probefs none at",
    "mount -t fuse probefs#none at",
    "mount -t fuse probefs# at",
    f"mount -t fuse.probefs none at -o {OPTIONS}",
    f"mount none $PWD/at -t fuse.probefs -o {OPTIONS}",  # as systemd does
    f"mount -n -s -t fuse.probefs -o {OPTIONS} none $PWD/at",  # as autofs does
])
def test_mount_command(directory, command):
    said = privately(f"mkdir at; {command}; {SHOWN}; rmdir at", directory)
    assert (said.returncode, said.stderr) == (0, "")
    assert "help" in said.stdout.split()
    mounted = re.search(r" (\S+) - fuse.probefs (\S+) (\S+)$", said.stdout, re.MULTILINE)
    assert {"nosuid", "nodev", "noexec"} <= set(mounted[1].split(","))
    assert mounted[2] == ("probefs" if command.endswith("# at") else "none")
    assert ("allow_other" in mounted[3].split(",")) == ("allow_other" in command)


@pytest.mark.parametrize("name", ["in a file system", "abstract"])
def test_supervisor(directory, name):
    """As systemd's Type=notify hears that the unit is ready."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        path = f"{directory.name}-notify" if name == "abstract" else f"{tempfile.mkdtemp()}/notify"
        listening.bind(f"\0{path}" if name == "abstract" else path)
        listening.settimeout(patience(60))
        process = foreground(directory, env={**os.environ, "NOTIFY_SOCKET": f"@{path}" if name == "abstract" else path})
        assert listening.recv(100) == b"READY=1"
        assert (directory / "help").read_text()
    process.terminate()
    assert process.wait(patience(60)) == 0
    if name != "abstract":
        shutil.rmtree(pathlib.Path(path).parent)


def test_fstab(directory):
    """Also where it is mounted already, as at each `mount -a`."""
    (directory / "fstab").write_text(f"none {directory}/at fuse.probefs defaults,hidepid=1 0 0\n")
    said = privately("mkdir at; mount --bind fstab /etc/fstab; mount -a; mount -a; mount at || true; umount at; "
                     f"mount at; {SHOWN}; rmdir at", directory)
    assert said.returncode == 0 and said.stdout.count(" fuse.probefs none ") == 1
    assert "help" in said.stdout.split()


def test_autofs(directory):
    """It lets the process group that it asked to mount look at the place, and holds up everybody else."""
    if "\tautofs\n" not in pathlib.Path("/proc/filesystems").read_text():
        pytest.skip("the kernel has no autofs")
    said = privately("mkdir auto; exec {to}> >(head -c 1 > asked; sleep infinity); setsid --wait bash -e -c '"
                     "mount -t autofs -o fd='$to',pgrp=$$,minproto=5,maxproto=5,indirect none auto; mkdir auto/at; "
                     "setsid ls auto/at/ & until [ -s asked ]; do sleep 0.05; done; "
                     "timeout --foreground 40 probefs none auto/at; umount auto/at'", directory)
    assert (said.returncode, said.stderr) == (0, "")


def test_unknown_mount_option(directory):
    refused(probefs("-o", "nonsense", directory), "nonsense")
    assert not os.path.ismount(directory)


def test_wrong_mount_points(directory):
    missing = directory / "missing"
    refused(probefs(missing), "no directory", f"mkdir {missing}")
    file = directory / "file"
    file.write_text("")
    refused(probefs(file), file, "not a directory")
    refused(probefs(directory), directory, "not empty", "nonempty")
    refused(probefs("/proc"), "mounted on it")


def test_nonempty_hides(directory):
    (directory / "file").write_text("")
    assert probefs("-o", "nonempty", directory).returncode == 0
    assert os.listdir(directory).count("file") == 0
    subprocess.run(["fusermount3", "-u", directory], check=True)
    assert os.listdir(directory) == ["file"]


def test_background(directory):
    """It returns once the mount answers, holds nothing of the terminal, and ends at unmounting."""
    assert probefs(directory).returncode == 0
    assert "help" in os.listdir(directory)
    (pid,) = serving(directory)
    assert os.getsid(pid) == pid
    open_files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (0, 1, 2)]
    assert open_files == ["/dev/null"] * 3
    assert os.readlink(f"/proc/{pid}/cwd") == "/"

    refused(probefs(directory), "already", f"fusermount3 -u {directory}")
    assert "help" in os.listdir(directory)

    subprocess.run(["fusermount3", "-u", directory], check=True)
    eventually(lambda: not serving(directory), what="the daemon's end")


def test_background_holds_no_pipe(directory):
    """$(probefs /probe) and ssh host probefs /probe return."""
    command = f"{daemon.build()}/fs/probefs {directory}; echo done"
    said = subprocess.run(["bash", "-c", f'echo "$({command} 3>&1)"'], capture_output=True,
                          text=True, timeout=patience(60))
    assert said.stdout == "done\n"


def test_relative_path(directory):
    assert probefs(directory.name, cwd=directory.parent).returncode == 0
    assert "help" in os.listdir(directory)


def test_path_with_a_space(directory):
    below = directory / "a b"
    below.mkdir()
    assert probefs(below).returncode == 0
    try:
        refused(probefs(below), "already")
    finally:
        subprocess.run(["umount", below], check=True)
        below.rmdir()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it(directory, number):
    process = foreground(directory)
    process.send_signal(number)
    assert process.wait(patience(30)) == 0
    assert not os.path.ismount(directory)


def test_ends_while_used(directory):
    """A shell that stands in the mount, and an open file, hold nothing up."""
    process = foreground(directory)
    with open(directory / "help") as file:
        inside = subprocess.Popen(["sleep", "60"], cwd=directory / "by-rank")
        try:
            process.terminate()
            assert process.wait(patience(30)) == 0
            assert not os.path.ismount(directory)
            with pytest.raises(OSError):
                file.read()
        finally:
            inside.kill()
            inside.wait()


def test_dead_daemon(directory):
    """Its mount is removed by the next one, which says so."""
    assert probefs(directory).returncode == 0
    (pid,) = serving(directory)
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: dead(directory), what="the mount's death")
    again = probefs(directory)
    assert again.returncode == 0, again.stderr
    assert "had died" in again.stderr and str(directory) in again.stderr
    assert "help" in os.listdir(directory)
    (pid,) = serving(directory)
    mounts = pathlib.Path("/proc/self/mountinfo").read_text()
    assert mounts.count(f" {directory} ") == 1


def test_limits(directory):
    """One pidfd a process, and the agent's library: the soft limits of the shell must not be the daemon's."""
    result = probefs(directory, under=["prlimit", "--nofile=64:4096", "--fsize=4096:1073741824"])
    assert result.returncode == 0
    (pid,) = serving(directory)
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    assert re.search("^Max open files +4096 +4096 ", limits, re.M)
    assert re.search("^Max file size +1073741824 +1073741824 ", limits, re.M)


def in_private_mounts(command, *args):
    """The command in a mount namespace of its own, after `command` changed that."""
    script = f'{command} || exit 77; exec "$0" "$@"'
    result = probefs(*args, under=["unshare", "-m", "sh", "-c", script])
    if result.returncode == 77:
        pytest.skip("no private mount namespace here")
    return result


def test_no_device(directory):
    result = in_private_mounts("mount -t tmpfs none /dev", directory)
    refused(result, "/dev/fuse", "modprobe fuse", "--device")


def test_no_permission_to_mount(directory):
    result = probefs(directory, under=["setpriv", "--bounding-set=-sys_admin"])
    refused(result, directory, "--cap-add SYS_ADMIN")


def device_for_all():
    return os.stat("/dev/fuse").st_mode & (stat.S_IROTH | stat.S_IWOTH) == 0o6


def as_nobody(command, *args):
    """As an ordinary user, with a device that everyone may open, as is usual."""
    drop = "setpriv --reuid=nobody --regid=nogroup --clear-groups"
    script = f'{command} && mknod /run/fuse c 10 229 && chmod 666 /run/fuse && ' \
             f'mount --bind /run/fuse /dev/fuse && rm /run/fuse || exit 77; exec {drop} "$0" "$@"'
    result = probefs(*args, under=["unshare", "-m", "sh", "-c", script])
    if result.returncode == 77:
        pytest.skip("no private mount namespace here")
    return result


def test_ordinary_user(directory, nobody):
    refused(as_nobody("true", directory), "may not write")
    os.chown(directory, 65534, 65534)
    conf = pathlib.Path("/etc/fuse.conf")
    if "\nuser_allow_other" not in "\n" + (conf.read_text() if conf.exists() else ""):
        refused(as_nobody("true", "-o", "allow_other", directory), "user_allow_other", conf)
    refused(as_nobody("mount --bind /dev/null /usr/bin/fusermount3", directory),
            "fusermount3", "apt-get install fuse3")


def test_ordinary_user_without_the_device(directory, nobody):
    if device_for_all():
        pytest.skip("everyone may open /dev/fuse here")
    os.chown(directory, 65534, 65534)
    refused(probefs(directory, **NOBODY), "/dev/fuse", "Permission denied")
