"""One place from which git is started.

Every call is independent of the caller's surroundings (a hook's GIT_DIR, a repository of another owner, a
prompt for a password) and runs no hook.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from perfci.errors import SourceError

# What git itself takes as "this repository": set inside hooks, and wrong for any other repository.
_LOCAL = frozenset(
    f"GIT_{name}"
    for name in (
        "ALTERNATE_OBJECT_DIRECTORIES",
        "CEILING_DIRECTORIES",
        "COMMON_DIR",
        "CONFIG",
        "CONFIG_PARAMETERS",
        "DIR",
        "GRAFT_FILE",
        "INDEX_FILE",
        "NAMESPACE",
        "OBJECT_DIRECTORY",
        "PREFIX",
        "SHALLOW_FILE",
        "WORK_TREE",
    )
)
# The commits that a suite names are run anyway: who owns their repository adds nothing. gc would remove what a
# force-push left without a name.
_SETTINGS = (
    "safe.directory=*",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
)
_SILENT = "fatal: Could not read from remote repository"
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: bytes
    problem: str  # the last line that git wrote about an error, without credentials

    @property
    def text(self) -> str:
        return self.out.decode("utf-8", "replace").strip()


def ask(
    *arguments: str,
    folder: Path | None = None,
    settings: Sequence[str] = (),
    lock: int | None = None,
    feed: bytes | IO[bytes] = b"",
    to: IO[bytes] | None = None,
    stores: Sequence[Path] = (),
    timeout_s: float = 1800.0,
) -> Answer:
    """Run git on what is on this machine, and return what it said, whatever its exit code.

    settings: `key=value` for this call. lock: a descriptor that the child holds as well. feed: its standard input.
    to: a file for what it writes, in place of the answer. stores: folders of objects to look into as well.
    Raises SourceError when git is absent or takes longer than `timeout_s`.
    """
    given: dict[str, Any] = (
        {"input": feed} if isinstance(feed, bytes) and feed else {"stdin": feed or subprocess.DEVNULL}
    )
    try:
        done = subprocess.run(
            command(*arguments, settings=settings),
            cwd=folder,
            env=environment(_alternates(stores)),
            **given,
            stdout=to or subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
            check=False,
            pass_fds=() if lock is None else (lock,),
        )
    except FileNotFoundError as error:
        if folder is not None and not folder.is_dir():
            raise SourceError(f"{folder} is no folder", next_step="name an existing one") from error
        raise absent() from error
    except subprocess.TimeoutExpired as error:
        raise SourceError(
            f"git {arguments[0]} took longer than {timeout_s:.0f} s", next_step="look at the disk, then try again"
        ) from error
    return Answer(done.returncode, done.stdout or b"", problem(done.stderr))


def demand(
    *arguments: str,
    folder: Path | None = None,
    settings: Sequence[str] = (),
    lock: int | None = None,
    feed: bytes | IO[bytes] = b"",
    to: IO[bytes] | None = None,
    stores: Sequence[Path] = (),
    next_step: str = "mend the repository, then try again",
) -> Answer:
    """Like `ask`, for a call that must succeed. Raises SourceError with git's own words."""
    answer = ask(*arguments, folder=folder, settings=settings, lock=lock, feed=feed, to=to, stores=stores)
    if answer.code != 0:
        raise SourceError(f"git {arguments[0]}: {answer.problem or f'exit code {answer.code}'}", next_step=next_step)
    return answer


def command(*arguments: str, settings: Sequence[str] = ()) -> list[str]:
    words = ["git"]
    for setting in (*_SETTINGS, *settings):
        words += ["-c", setting]
    return [*words, *arguments]


def environment(more: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _LOCAL}
    fixed = {
        "GIT_TERMINAL_PROMPT": "0",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_OPTIONAL_LOCKS": "0",  # a look at the user's repository writes nothing into it
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
    return kept | fixed | dict(more)


def absent() -> SourceError:
    return SourceError("there is no program named git", next_step="install git")


def without_credentials(text: str) -> str:
    return _USERINFO.sub("", text)


def problem(stderr: bytes) -> str:
    """The line that tells what went wrong, without credentials."""
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [n for n, line in enumerate(lines) if line.startswith(("fatal:", "error:", "! "))] or [*range(len(lines))]
    if not telling:
        return ""
    # ssh says why, and git then that it could not read.
    at = telling[0] - 1 if telling[0] > 0 and lines[telling[0]].startswith(_SILENT) else telling[0]
    return without_credentials(lines[at])[:500]


def _alternates(stores: Sequence[Path]) -> dict[str, str]:
    quoted = ('"' + str(store).replace("\\", "\\\\").replace('"', '\\"') + '"' for store in stores)
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(quoted)} if stores else {}
