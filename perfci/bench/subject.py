"""The user that a suite's commands run as: another one than the worker, which has the node's key and its tokens.

    worker ── guardian ── command ── whatever it starts
              └──── all of it as the subject ────┘

The guardian runs as the subject too, so that it may kill what is below it. A worker that is root changes the user
itself; any other asks `sudo`, which has to let it, and it alone, be the subject without a password.
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.errors import SettingsError

# Of the worker's environment these describe the worker.
_THE_WORKERS = ("HOME", "USER", "LOGNAME", "SHELL", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True)
class Subject:
    """gid: the group that the worker is in as well; what both write belongs to it."""

    name: str
    uid: int
    gid: int

    def command(self, words: tuple[str, ...]) -> tuple[str, ...]:
        return words if os.geteuid() == 0 else ("sudo", "-n", "-u", self.name, "--", *words)

    def options(self) -> dict[str, Any]:
        """For subprocess.Popen: root needs no program to become another user."""
        if os.geteuid() != 0:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": os.getgrouplist(self.name, self.gid)}

    def environment(self, given: Mapping[str, str], *, home: Path) -> dict[str, str]:
        """home: thrown away with the command's other files, since settings and caches in it would reach the next."""
        kept = {key: value for key, value in given.items() if key not in _THE_WORKERS}
        # The checkout belongs to the worker; git would refuse to read it.
        git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        return kept | git | {"HOME": str(home), "USER": self.name, "LOGNAME": self.name, "SHELL": "/bin/sh"}


def of(name: str) -> Subject | None:
    """None for no name. Raises SettingsError for a user that is not there, or that this one cannot become."""
    if not name:
        return None
    where = f"service.subject = {name!r}"
    try:
        found = pwd.getpwnam(name)
    except KeyError as error:
        raise SettingsError(f"{where} is no user here", next_step="make it: perfci runner setup --users") from error
    if found.pw_uid in (0, os.geteuid()):
        raise SettingsError(
            f"{where} is {'root' if found.pw_uid == 0 else 'the user that runs the worker'}",
            next_step="name a user of its own, or leave it empty",
        )
    if os.geteuid() != 0:
        if shutil.which("sudo") is None:
            raise SettingsError(f"{where}, and there is no sudo", next_step="install sudo, or leave it empty")
        if found.pw_gid not in (os.getegid(), *os.getgroups()):
            group = grp.getgrgid(found.pw_gid).gr_name
            raise SettingsError(
                f"{where}: this user is not in its group {group!r}",
                next_step="run `perfci runner setup --users` as root, then start the worker again",
            )
    return Subject(name, found.pw_uid, found.pw_gid)
