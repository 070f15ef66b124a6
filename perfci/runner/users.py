"""The two users of a node, made by root: the worker, and the subject that a suite's commands run as.

The worker is in the subject's group, so that both write in the work folders. It may become the subject, and nobody
else, through sudo.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from perfci.errors import ServiceError
from perfci.runner.findings import Finding, fail, ok

WORKER, SUBJECT = "perfci-worker", "perfci-subject"
SUDOERS = Path("/etc/sudoers.d")


@dataclass(frozen=True, slots=True)
class Users:
    worker: str
    subject: str


def make(users: Users, *, sudoers: Path = SUDOERS) -> tuple[Finding, ...]:
    """Make what is missing of them. Raises ServiceError when this user is not root, or a program fails."""
    if os.geteuid() != 0:
        raise ServiceError("only root may make users", next_step="run it as root, or leave out --users")
    found = [_user(users.subject), _user(users.worker)]
    group = grp.getgrgid(pwd.getpwnam(users.subject).pw_gid)
    if users.worker not in group.gr_mem:
        _do("usermod", "--append", "--groups", group.gr_name, users.worker)
    found.append(ok("group", f"{users.worker} is in {group.gr_name}"))
    return (*found, _allow(users, sudoers))


def own(path: Path, user: str, *, mode: int) -> None:
    """Give a folder and what is in it to a user. One that is the user's already is left alone: the subject may have
    written in there since."""
    account = pwd.getpwnam(user)
    if path.is_dir() and path.stat().st_uid == account.pw_uid:
        return
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    for name, folders, files in os.walk(path):
        for entry in ("", *folders, *files):
            os.chown(Path(name, entry), account.pw_uid, account.pw_gid, follow_symlinks=False)


def _user(name: str) -> Finding:
    try:
        pwd.getpwnam(name)
    except KeyError:
        nologin = shutil.which("nologin", path="/usr/sbin:/sbin:/usr/bin:/bin") or "/bin/false"
        _do(
            "useradd",
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
            "--shell",
            nologin,
            name,
        )
        return ok("user", f"{name} was made")
    return ok("user", f"{name} is there")


def _allow(users: Users, sudoers: Path) -> Finding:
    if shutil.which("sudo") is None or not sudoers.is_dir():
        return fail(
            "sudo",
            f"there is none, and {users.worker} cannot become {users.subject} without it",
            next_step="install sudo and run this again",
        )
    path = sudoers / "perfci"
    text = f"{users.worker} ALL=({users.subject}) NOPASSWD: ALL\n"
    if not path.is_file() or path.read_text("utf-8") != text:
        new = sudoers / ".perfci.new"  # sudo reads no file with a dot in its name
        new.write_text(text, "utf-8")
        new.chmod(0o440)
        new.replace(path)
    return ok("sudo", f"{users.worker} may become {users.subject} ({path})")


def _do(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ServiceError(f"{command[0]}: {error.strerror}", next_step="install it") from error
    if done.returncode != 0:
        raise ServiceError(f"{' '.join(command)} says: {done.stderr.strip()[:300]}", next_step="make the user by hand")
