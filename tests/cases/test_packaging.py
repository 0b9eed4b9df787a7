"""The packages, as far as they can be looked at without making them: contrib/packaging/package makes them."""
import json
import pathlib
import re
import shutil
import subprocess
import tomllib
import xml.etree.ElementTree
import zipfile

import pytest

import mount as daemon
from commands import Commands
from interpreters import eventually

PACKAGING = daemon.REPOSITORY / "contrib" / "packaging"
DEBIAN = PACKAGING / "debian"
UNIT = (DEBIAN / "probefs.service").read_text()
OF_PYTHON = "usr/lib/python3*"  # of a build with -Dpython
PREFIX = "usr/local"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """What `ninja install` puts where, below /usr."""
    to = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", daemon.build(), "--no-rebuild", "--quiet", "--destdir", to], check=True,
                   capture_output=True)
    (to / PREFIX).rename(to / "moved")
    (to / "usr").rmdir()
    (to / "moved").rename(to / "usr")
    return {str(path.relative_to(to)): path for path in (to / "usr").rglob("*") if path.is_file()}


def listed():
    return [(file.stem, line) for file in DEBIAN.glob("*.install") for line in file.read_text().splitlines()]


def test_debian_has_all_that_is_installed(installed):
    for name in installed:
        of = [package for package, place in listed()
              if pathlib.PurePath(name).match(place) or name.startswith(place + "/")]
        assert len(of) == 1, f"{name} is in {of}"
    for package, place in listed():
        assert place == OF_PYTHON or any(pathlib.PurePath(name).match(place) or name.startswith(place + "/")
                                         for name in installed), f"{package} wants {place}"


def test_versions():
    version = re.search(r"version: '(.*)'", (daemon.REPOSITORY / "meson.build").read_text())[1]
    assert (DEBIAN / "changelog").read_text().startswith(f"probefs ({version}) ")
    extension = json.loads((daemon.REPOSITORY / "contrib" / "vscode" / "package.json").read_text())
    assert extension["version"] == version
    project = tomllib.loads((PACKAGING / "pyproject.toml").read_text())["project"]
    assert project["name"] == "probefs" and project["dynamic"] == ["version"]


def test_extension_of_vs_code():
    """What the build packs is what an editor installs, and all that it names is there."""
    vsix = daemon.build() / "contrib" / "vscode" / "probefs.vsix"
    if not vsix.exists():
        pytest.skip("the extension isn't built: jansson is missing")
    directory = daemon.REPOSITORY / "contrib" / "vscode"
    package = json.loads((directory / "package.json").read_text())
    with zipfile.ZipFile(vsix) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    inside = {name.partition("/")[2] for name in files if name.startswith("extension/")}
    assert inside == {"package.json", *package["files"]} and package["main"].removeprefix("./") in inside
    assert files["extension/package.json"] == (directory / "package.json").read_text()
    manifest = xml.etree.ElementTree.fromstring(files["extension.vsixmanifest"])
    assert manifest.find(".//{*}Identity").attrib.items() >= {"Id": "probefs", "Version": package["version"]}.items()
    assert {asset.get("Path") for asset in manifest.iter("{*}Asset")} <= set(files)
    xml.etree.ElementTree.fromstring(files["[Content_Types].xml"])
    code = files["extension/extension.js"]
    commands = {one["command"] for one in package["contributes"]["commands"]} | {"probefs.pickProcess"}
    assert commands == set(re.findall(r"registerCommand\('([^']*)'", code))
    settings = {name.partition(".")[2] for name in package["contributes"]["configuration"]["properties"]}
    assert settings == set(re.findall(r"setting\('([^']*)'\)", code))


def test_what_is_vendored_has_its_licence():
    named = re.findall(r"^Files: (.*)", (DEBIAN / "copyright").read_text(), re.M)
    for licence in daemon.REPOSITORY.glob("*/**/LICENSE*"):
        assert f"{licence.parent.relative_to(daemon.REPOSITORY)}/*" in named, licence


def test_image():
    """It installs what the packages are built of, and mounts where its recipe for a cluster says."""
    image = (PACKAGING / "Dockerfile").read_text()
    wanted = re.search("^Build-Depends: (.*?)^[A-Z]", (DEBIAN / "control").read_text(), re.M | re.S)[1]
    packages = [name.removesuffix("-compat") for name in re.findall(r"^ *([a-z0-9-]+)(?: \([^)]*\))?,?$", wanted, re.M)]
    assert "debhelper" in packages and not set(packages) - set(image.split())
    for program in "probefs_*.deb", "probefs-tools_*.deb":
        assert f"/tmp/{program}" in image
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((PACKAGING / "kubernetes.yaml").read_text())
    assert recipe["spec"]["selector"]["matchLabels"] == recipe["spec"]["template"]["metadata"]["labels"]
    pod = recipe["spec"]["template"]["spec"]
    (container,), (volume,) = pod["containers"], pod["volumes"]
    (mounted,) = container["volumeMounts"]
    assert pod["hostPID"] and mounted["mountPropagation"] == "Bidirectional"
    assert container["securityContext"]["privileged"] and mounted["name"] == volume["name"]
    assert container["command"][0] == "probefs"
    assert container["command"][-1] == mounted["mountPath"] == volume["hostPath"]["path"]


def test_unit(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    unit = tmp_path / "probefs.service"
    unit.write_text(UNIT.replace("/usr/bin/probefs", str(daemon.build() / "fs" / "probefs")))
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")


def test_unit_has_no_filter_of_system_calls():
    """Neither by that name, nor by what systemd.exec(5) says that it is made of one: it would keep the daemon from
    reading those of containers, and from acting there."""
    for name in ("SystemCall", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID",
                 "LockPersonality", "MemoryDenyWriteExecute", "ProtectClock", "ProtectHostname", "ProtectKernel",
                 "PrivateDevices"):
        assert not re.search(f"^{name}", UNIT, re.M), name


def test_capabilities_of_the_unit(any_python):
    """All works with what the unit leaves the daemon, also on a process of another user that has a container's filter
    of system calls."""
    words = " ".join(re.findall(r"^CapabilityBoundingSet=(.*)", UNIT, re.M)).split()
    bounds = "-all," + ",".join("+" + word.removeprefix("CAP_").lower() for word in words)
    probe = daemon.Probe("allow_other", within=["setpriv", f"--bounding-set={bounds}", "--no-new-privs", "--"])
    filtered = ["/usr/bin/python3", daemon.REPOSITORY / "tests" / "seccomp-exec", "EPERM", "containers"]
    try:
        with any_python.run("spinner.py", user="nobody", within=filtered) as target:
            directory = probe.path / str(target.pid)
            eventually(lambda: "inner (" in (directory / "backtrace").read_text(), what="what it computes in")
            assert Commands(probe, target.pid).value("6 * 7") == "42"
            (directory / "ctl").write_text("profile cpu 97hz\n")
            eventually(lambda: "inner" in (directory / "profile" / "folded").read_text(), what="samples")
            assert re.search(r"^Source: bpf$", (directory / "profile" / "status").read_text(), re.M)
            (directory / "ctl").write_text("detach\n")
    finally:
        probe.close()
