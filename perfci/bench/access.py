"""How git is let into a private repository: an ssh key file, or a token for https.

Neither is ever an argument of a program or a part of a URL, where other users, logs and messages would show it.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from perfci.errors import SourceError

_TOKEN_VARIABLE = "PERFCI_GIT_TOKEN"
_FROM_VARIABLE = "env:"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# No settings of the user's: they may name more keys, and ssh offers all that it has. No agent, no question.
_SSH = (
    "-F /dev/null -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes -o PasswordAuthentication=no"
    " -o ConnectTimeout=30 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
)


@dataclass(frozen=True, slots=True)
class Access:
    """What one call of git gets. settings: `key=value`. variables: of its environment."""

    settings: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


def of(key: str, repository: str) -> Access:
    """key: a file, or `env:NAME` for a token in that variable; empty: whatever the user's own git has.

    Raises SourceError for a key that ssh would refuse, an unset variable, and a token that would travel in the clear.
    """
    if not key or Path(repository).is_absolute():
        return Access()
    if key.startswith(_FROM_VARIABLE):
        return _by_token(key, repository)
    file = Path(key)
    try:
        mode = file.stat().st_mode
        with file.open("rb"):
            pass
    except OSError as error:
        raise SourceError(
            f"deploy_key {key}: {error.strerror}", next_step="name a key file that can be read"
        ) from error
    if mode & 0o077:
        raise SourceError(f"deploy_key {key} is open to other users", next_step=f"chmod 600 {key}")
    return Access(variables=(("GIT_SSH_COMMAND", f"ssh -i {shlex.quote(str(file))} {_SSH}"),))


def serves(key: str, repository: str, other: str) -> bool:
    """Whether the key of one repository may be shown to where another one lies: a token only to its own host."""
    return not key.startswith(_FROM_VARIABLE) or _place(repository) == _place(other)


def advice(problem: str, key: str) -> str:
    """The next step after git could not read a repository."""
    if "Host key verification failed" in problem:
        return "add the host's key to ~/.ssh/known_hosts of the user that runs this"
    if "Permission denied" in problem or "Authentication failed" in problem or "could not read Username" in problem:
        what = f"let {key} read it, without a passphrase" if key else "set the suite's `deploy_key`"
        return f"{what} (docs/settings.md, Private repositories)"
    return "mend `repo` in perfci.toml"


def _by_token(key: str, repository: str) -> Access:
    name = key.removeprefix(_FROM_VARIABLE)
    token = os.environ.get(name, "").strip()
    if not token:
        raise SourceError(
            f"deploy_key {key}: there is no variable {name}", next_step="set it for what runs `perfci plan`"
        )
    url = urlsplit(repository)
    if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
        raise SourceError(f"deploy_key {key} is a token, which needs https", next_step="set `repo` to an https URL")
    # The host's alone, and asked for once the host has asked: nothing is sent after a redirect to another one.
    answer = f"printf 'password=%s\\n' \"${_TOKEN_VARIABLE}\""
    if not url.username:
        answer = f"echo username=x-access-token; {answer}"
    helper = f'!f() {{ test "$1" = get && {{ {answer}; }}; }}; f'
    return Access(
        settings=("credential.helper=", f"credential.{_place(repository)}.helper={helper}"),
        variables=((_TOKEN_VARIABLE, token),),
    )


def _place(repository: str) -> str:
    url = urlsplit(repository)
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"
