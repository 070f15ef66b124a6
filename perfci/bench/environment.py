"""What a suite's commands run in: the runner's own Python, or an environment made from a lock file.

An environment is made once for each content of the lock file (and of the files that it includes) and each
Python, and shared by all commits and runs that have the same. So it holds nothing of the repository itself:
a lock that installs from the checkout is refused, since the next commit would be measured with this one's code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from perfci.bench import process, sharing
from perfci.bench import subject as subjects
from perfci.bench.ownership import exclusive, remove_tree
from perfci.bench.source import Mirror
from perfci.bench.subject import Subject
from perfci.errors import SettingsError

# One line: the Python, then a digest of what is installed there. The values are those of `_this_python`.
_ASK_INSTALLED = """
import hashlib, importlib.metadata, platform, sys
own = f"{platform.python_implementation()} {platform.python_version()} {platform.machine()} {sys.base_prefix}"
found = sorted({f"{d.name}=={d.version}" for d in importlib.metadata.distributions()})
print(f"{own}|{sys.prefix}|{hashlib.sha256(repr(found).encode()).hexdigest()}")
"""
Echo = Callable[[str], None]
_MARKER = "perfci-complete"
# One with torch takes gigabytes. Those of the last week may be in use.
KEPT_ENVIRONMENTS, _KEPT_S = 10, 7 * 86400.0
_NOT_FOR_PIP = ("uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "pixi.lock", "conda-lock.yml", "environment.yml")
_INCLUDES = ("-r", "--requirement", "-c", "--constraint")


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a commit cannot be run: for `build_failed`."""

    reason: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """python: the program. key: equal for equal contents; part of what a build is cached by. subject: as whom it runs;
    None: as this user. What it holds is the commit's, so nobody else may run it."""

    python: Path
    key: str
    subject: Subject | None = None

    @property
    def programs(self) -> Path:
        return self.python.parent


class _LockProblem(Exception):
    pass


@functools.cache
def own(runner: str = "", subject: str = "") -> Interpreter:
    """The Python of the environment that measures, with what is installed there; by default perfci's own.

    runner, subject: as the settings have them. Raises SettingsError for a runner that does not run, or no such user.
    """
    user = subjects.of(subject)
    if not runner:
        installed = sorted({f"{d.name}=={d.version}" for d in importlib.metadata.distributions()})
        return Interpreter(Path(sys.executable), f"own-{_digest(_this_python(), sys.prefix, *installed)}", user)
    python = Path(os.path.abspath(runner))  # noqa: PTH100  a link is what makes it that environment's
    return Interpreter(python, f"own-{_digest(_described(python, user))}", user)


def prepare(
    mirror: Mirror, sha: str, lock_file: str, *, base: Interpreter, cache: Path, timeout_s: float, echo: Echo
) -> Interpreter | Failure:
    """The environment for `lock_file` at that commit, made now unless there is one. A failure is not remembered.

    base: whose Python it gets, and as whom it is made and run: what is installed may run code of its own."""
    try:
        files = _lock_files(mirror, sha, lock_file)
    except _LockProblem as problem:
        return Failure(str(problem))
    key = _digest(_python_of(base), *(f"{name}\0{text}" for name, text in sorted(files.items())))
    folder = cache / "environments" / key
    found = Interpreter(folder / "bin" / "python", key, base.subject)
    with exclusive(folder.with_suffix(".lock"), patience_s=timeout_s + 60):
        if (folder / _MARKER).is_file():
            (folder / _MARKER).touch()
            return found
        if folder.exists():  # a killed run began it
            sharing.reopen(folder, base.subject)
            remove_tree(folder)
        failure = _make(folder, lock_file, files, base=base, timeout_s=timeout_s, echo=echo)
        if failure is None:
            _take_over(folder, base.subject)
            (folder / _MARKER).touch()
            _trim(folder.parent)
    return failure or found


def included(mirror: Mirror, sha: str, lock_file: str) -> tuple[str, ...]:
    """The files that `prepare` reads beside `lock_file`, as far as the commit has them."""
    found: dict[str, None] = {}
    wanted = [lock_file]
    while wanted:
        path = wanted.pop()
        data = None if path in found else mirror.blob(sha, path)
        if data is None:
            continue
        found[path] = None
        for line in data.decode("utf-8", "replace").splitlines():
            with contextlib.suppress(_LockProblem):
                if include := _include(path, line):
                    wanted.append(_beside(path, include))
    return tuple(found)[1:]


def lacks(interpreter: Interpreter, module: str, environment: Mapping[str, str]) -> bool:
    """Whether `module` cannot be imported there."""
    if str(interpreter.python) == sys.executable and interpreter.subject is None:
        return importlib.util.find_spec(module) is None
    question = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    ended = process.run(
        (str(interpreter.python), "-c", question),
        folder=Path("/"),
        environment=environment,
        timeout_s=60,
        log=Path(os.devnull),
        subject=interpreter.subject,
    )
    return ended.code != 0


def _make(
    folder: Path, lock_file: str, files: Mapping[str, str], *, base: Interpreter, timeout_s: float, echo: Echo
) -> Failure | None:
    name = f"environment {folder.name[:8]} of {lock_file}"
    echo(f"{name}: installing")
    inputs = folder / "lock"
    for path, text in files.items():
        (inputs / path).parent.mkdir(parents=True, exist_ok=True)
        (inputs / path).write_text(text, "utf-8")
    sharing.share(folder, base.subject)
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check")
    steps = (
        (str(base.python), "-m", "venv", str(folder)),
        (*pip, "--progress-bar=off", "-r", str(inputs / lock_file)),
    )
    for command in steps:
        ended = process.run(
            command,
            folder=inputs,
            environment=as_subject(process.scrubbed(os.environ, network=True), base.subject, home=folder / "home"),
            timeout_s=timeout_s,
            subject=base.subject,
            log=folder.with_suffix(".log"),
            progress=every(15, lambda elapsed, line: echo(f"{name}: {elapsed:.0f} s, {line}")),
        )
        if ended.code != 0:
            return Failure(f"{lock_file} could not be installed: {' '.join(command[1:4])} {ended.how()}", ended.tail)
    return None


def as_subject(environment: Mapping[str, str], subject: Subject | None, *, home: Path) -> dict[str, str]:
    return subject.environment(environment, home=home) if subject else dict(environment)


def reopener(subject: str) -> Callable[[Path], None]:
    """For what a killed run of that user left behind."""
    user = subjects.of(subject)
    return lambda folder: sharing.reopen(folder, user)


def _take_over(folder: Path, subject: Subject | None) -> None:
    """Make what the subject installed the worker's own, so that no commit's code can change what others share."""
    if subject is None:
        return
    new = folder.with_name(f"{folder.name}.new")
    if new.exists():
        remove_tree(new)
    sharing.reopen(folder, subject)
    if (folder / "home").exists():
        remove_tree(folder / "home")
    sharing.copy_over(folder, new)
    remove_tree(folder)
    new.rename(folder)


def _trim(environments: Path) -> None:
    """Away with those that nothing has used for long."""
    used = sorted(((m.stat().st_mtime, m.parent) for m in environments.glob(f"*/{_MARKER}")), reverse=True)
    for when, folder in used[KEPT_ENVIRONMENTS:]:
        if time.time() - when > _KEPT_S:
            (folder / _MARKER).unlink()
            remove_tree(folder)


def every(seconds: float, tell: Callable[[float, str], None]) -> Callable[[float, str], None]:
    """A progress callback that passes on one call in so many seconds."""
    last = 0.0

    def progress(elapsed: float, line: str) -> None:
        nonlocal last
        if elapsed - last >= seconds:
            last = elapsed
            tell(elapsed, line)

    return progress


def _lock_files(mirror: Mirror, sha: str, lock_file: str) -> dict[str, str]:
    """The lock and what it includes, by path in the repository."""
    if PurePosixPath(lock_file).name in _NOT_FOR_PIP:
        raise _LockProblem(f"environment = {lock_file!r} is no file for pip; export it as requirements")
    found: dict[str, str] = {}
    wanted = [lock_file]
    while wanted:
        path = wanted.pop()
        if path in found:
            continue
        data = mirror.blob(sha, path)
        if data is None:
            raise _LockProblem(f"environment = {lock_file!r}: the commit has no file {path}")
        found[path] = data.decode("utf-8", "replace")
        for number, line in enumerate(found[path].splitlines(), 1):
            include = _include(f"{path} line {number}", line)
            if include:
                wanted.append(_beside(path, include))
    return found


def _beside(path: str, include: str) -> str:
    """The path in the repository of what `path` includes. It becomes one in a folder of the worker's, so it must not
    lead elsewhere."""
    found = os.path.normpath(PurePosixPath(path).parent / include)
    if found.startswith("/") or f"{found}/".startswith("../"):
        raise _LockProblem(f"{path} includes {include!r}, which is not in the repository")
    return found


def _include(where: str, line: str) -> str | None:
    """The file that a line of a requirements file includes. Raises for one that installs from the checkout."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return None  # pip will say it better
    if not words:
        return None
    first, _, rest = words[0].partition("=")
    if first in _INCLUDES:
        included = rest or (words[1] if len(words) > 1 else "")
        return None if "://" in included else included or None
    target = (
        words[1] if first in ("-e", "--editable") and len(words) > 1 else rest if first == "--editable" else words[0]
    )
    after_at = line.partition(" @ ")[2].strip()
    if target.startswith((".", "/", "file:")) or after_at.startswith((".", "/", "file:")):
        raise _LockProblem(
            f"{where} installs {target!r} from the checkout, but an environment is shared by commits; "
            "do it in `build`, which has a place of its own for each commit"
        )
    return None


def _described(python: Path, subject: Subject | None) -> str:
    ended = process.run(
        (str(python), "-I", "-c", _ASK_INSTALLED),
        folder=Path("/"),
        environment=process.scrubbed(os.environ),
        timeout_s=120,
        log=Path(os.devnull),
        subject=subject,
    )
    if ended.code != 0 or not ended.tail:
        said = ended.tail.rpartition("\n")[2]
        raise SettingsError(
            f"service.runner = {str(python)!r} {ended.how()}: {said}", next_step="name the Python of an environment"
        )
    return ended.tail.rpartition("\n")[2]


def _python_of(base: Interpreter) -> str:
    """What an environment made by it depends on; the packages beside that Python are none of it."""
    return _this_python() if str(base.python) == sys.executable else _described_python(base)


@functools.cache
def _described_python(base: Interpreter) -> str:
    return _described(base.python, base.subject).partition("|")[0]


@functools.cache
def _this_python() -> str:
    return f"{platform.python_implementation()} {platform.python_version()} {platform.machine()} {sys.base_prefix}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]
