"""The node's two environments: a small one for the worker, one with torch and triton for what is measured.

Each has a note that says what it was made of. Without the note a killed set-up began it, and it is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

import perfci
from perfci import __version__
from perfci.bench import process
from perfci.bench.environment import Echo, every
from perfci.bench.ownership import remove_tree
from perfci.errors import ServiceError

_NOTE = "perfci-complete"
_LIMIT_S = 3600.0
# Without it the devices' memory, power and other processes are unknown.
_MANAGEMENT = "nvidia-ml-py>=12"


@dataclass(frozen=True, slots=True)
class Source:
    """Where packages come from. perfci: a wheel, a folder or a requirement of it. options: for `pip install`."""

    perfci: str
    options: tuple[str, ...] = ()

    def worker(self) -> tuple[str, ...]:
        return (f"{self.perfci}[edge]", _MANAGEMENT)

    def runner(self) -> tuple[str, ...]:
        return (f"{self.perfci}[runner]",)


def this_perfci() -> str:
    """What installs the perfci that is running: the file that it came from, else its version."""
    checkout = Path(perfci.__file__).resolve().parents[1]
    if (checkout / "pyproject.toml").is_file():
        return str(checkout)
    try:
        came_from = json.loads(metadata.distribution("perfci").read_text("direct_url.json") or "{}")
        url = urlsplit(str(came_from.get("url", "")))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        url = urlsplit("")
    path = Path(unquote(url.path))
    return str(path) if url.scheme == "file" and path.exists() else f"perfci=={__version__}"


def constraints() -> Path | None:
    """The versions that perfci's own tests ran with, where they came along."""
    library = Path(perfci.__file__).resolve().parent
    candidates = (library / "share" / "constraints.txt", library.parent / "constraints.txt")
    return next((path for path in candidates if path.is_file()), None)


def make(folder: Path, wanted: Sequence[str], source: Source, *, echo: Echo) -> Path:
    """The Python of an environment in `folder` with the packages `wanted`; made only if it is not there.

    Raises ServiceError with the end of pip's output.
    """
    python = folder / "bin" / "python"
    if is_made(folder, wanted, source):
        echo(f"{folder}: is there already")
        return python
    pip = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    if Path(sys.prefix).resolve() == folder.resolve():
        pip.append("--force-reinstall")  # this very environment: pip takes an equal version for the same
    elif folder.exists():
        remove_tree(folder)
    (folder / _NOTE).unlink(missing_ok=True)
    echo(f"{folder}: installing {', '.join(wanted)}")
    log = folder.with_name(f"{folder.name}.log")
    for command in ((sys.executable, "-m", "venv", str(folder)), (*pip, *source.options, *wanted)):
        _run(command, folder, log=log, echo=echo)
    log.unlink(missing_ok=True)
    (folder / _NOTE).write_text(_made_of(wanted, source), "utf-8")
    return python


def is_made(folder: Path, wanted: Sequence[str], source: Source) -> bool:
    note = folder / _NOTE
    made_of = note.read_text("utf-8") if note.is_file() else ""
    return made_of == _made_of(wanted, source) and (folder / "bin" / "python").exists()


def _run(command: tuple[str, ...], folder: Path, *, log: Path, echo: Echo) -> None:
    ended = process.run(
        command,
        folder=Path("/"),
        environment=process.scrubbed(os.environ, network=True),
        timeout_s=_LIMIT_S,
        log=log,
        progress=every(15, lambda elapsed, line: echo(f"{folder.name}: {elapsed:.0f} s, {line}")),
    )
    if ended.code == 0:
        return
    for line in ended.tail.splitlines()[-10:]:
        echo(f"  | {line}")
    raise ServiceError(
        f"{folder} could not be made: {' '.join(command[1:4])} {ended.how()}",
        next_step=f"mend what it says (all of it: {log}) and run this again",
    )


def _made_of(wanted: Sequence[str], source: Source) -> str:
    """A file counts by its contents: a wheel of the same name may be another one."""
    path = Path(source.perfci)
    contents = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    body = {"wanted": list(wanted), "options": list(source.options), "python": platform.python_version()}
    return json.dumps({**body, "perfci": contents}, indent=1) + "\n"
