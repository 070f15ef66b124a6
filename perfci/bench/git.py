"""One place from which git is started.

Every call is independent of the caller's surroundings (a hook's GIT_DIR, a repository of another owner, a
prompt for a password) and runs no hook.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
    timeout_s: float = 1800.0,
) -> Answer:
    """Run git and return what it said, whatever its exit code.

    settings: `key=value` for this call. lock: a descriptor that the child holds as well.
    Raises SourceError when git is absent or takes longer than `timeout_s`.
    """
    command = ["git"]
    for setting in (*_SETTINGS, *settings):
        command += ["-c", setting]
    command += arguments
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            pass_fds=() if lock is None else (lock,),
        )
    except FileNotFoundError as error:
        if folder is not None and not folder.is_dir():
            raise SourceError(f"{folder} is no folder", next_step="name an existing one") from error
        raise SourceError("there is no program named git", next_step="install git") from error
    except subprocess.TimeoutExpired as error:
        raise SourceError(
            f"git {arguments[0]} took longer than {timeout_s:.0f} s", next_step="look at the network, then try again"
        ) from error
    return Answer(done.returncode, done.stdout, _problem(done.stderr))


def demand(
    *arguments: str,
    folder: Path | None = None,
    settings: Sequence[str] = (),
    lock: int | None = None,
    next_step: str = "mend the repository, then try again",
) -> Answer:
    """Like `ask`, for a call that must succeed. Raises SourceError with git's own words."""
    answer = ask(*arguments, folder=folder, settings=settings, lock=lock)
    if answer.code != 0:
        raise SourceError(f"git {arguments[0]}: {answer.problem or f'exit code {answer.code}'}", next_step=next_step)
    return answer


def without_credentials(text: str) -> str:
    return _USERINFO.sub("", text)


def _problem(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", " ! "))] or lines
    return without_credentials(telling[0])[:500] if telling else ""


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _LOCAL}
    return kept | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",  # a look at the user's repository writes nothing into it
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
