"""A commit made ready to run: checkout, environment, build.

A build is cached by what it reads: suite, command, environment, the trees of the suite's paths, the launch
and the folder that it was made in (a build may write its own path into what it makes, so the same inputs get
the same folder). What is kept is a copy of the work folder after the build; a run gets a fresh checkout with
that copy laid over it, so that no run sees what another one left. A failure is remembered for the session
that saw it, and tried again by the next one: a full disk or a slow network is no property of a commit.

    worktrees/NAME/         claimed by this process
        pytest.ini          empty; pytest looks for settings no further up than here
        source/             the checkout, current folder of every command
        overlay/            where the build installs to, if there is a build
    cache/builds/SUITE/KEY/ the kept copies
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfci.bench import environment, overlay, ownership, process, sharing
from perfci.bench.checkout import worktree
from perfci.bench.environment import Echo, Failure, Interpreter, every
from perfci.bench.source import Mirror
from perfci.config import Settings, Suite

# A kept build may be gigabytes; nights go back and forth between few commits.
KEPT_BUILDS = 10
# The end of a failed build's log, told at once: where there is no database there is no table that would tell it.
TOLD_LINES = 5


@dataclass(frozen=True, slots=True)
class Ready:
    """folder: the work folder. source: the checkout in it. cached: the build was made earlier."""

    folder: Path
    source: Path
    interpreter: Interpreter
    cached: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What to make ready. launch: how a hardware wraps every command."""

    suite: Suite
    mirror: Mirror
    sha: str
    session: str
    launch: str = "{cmd}"


@contextmanager
def prepared(inputs: Inputs, settings: Settings, *, echo: Echo) -> Iterator[Ready | Failure]:
    """Everything that the suite's run command needs; a Failure where the commit cannot be run.

    Raises SourceError when the commit's files cannot be had, OSError when they cannot be written.
    """
    suite, mirror, sha = inputs.suite, inputs.mirror, inputs.sha
    ownership.prune(settings.worktrees, reopen=environment.reopener(settings.service.subject))
    tree = mirror.tree(sha, suite.paths)
    if tree is None:
        missing = next(path for path in suite.paths if mirror.tree(sha, (path,)) is None)
        yield Failure(f"paths: {missing} does not exist at commit {sha[:12]}")
        return
    interpreter = _interpreter(inputs, settings, echo)
    if isinstance(interpreter, Failure):
        yield interpreter
        return
    recipe = _digest(suite.name, suite.build, interpreter.key, tree, inputs.launch) if suite.build else ""
    folder = ownership.claim(settings.worktrees, f"{suite.name}-{(recipe or sha)[:12]}")
    try:
        (folder / "pytest.ini").touch()
        with worktree(mirror, sha, suite.files, folder / "source") as source:
            for place in (source, folder / "home"):
                sharing.share(place, interpreter.subject)
            ready = Ready(folder, source, interpreter)
            try:
                yield _built(inputs, ready, settings, recipe=recipe, echo=echo) if recipe else ready
            finally:
                sharing.reopen(folder, interpreter.subject)
    finally:
        ownership.release(folder)


def _interpreter(inputs: Inputs, settings: Settings, echo: Echo) -> Interpreter | Failure:
    suite = inputs.suite
    base = environment.own(settings.service.runner, settings.service.subject)
    found: Interpreter | Failure = base
    if suite.environment:
        found = environment.prepare(
            inputs.mirror,
            inputs.sha,
            suite.environment,
            base=base,
            cache=settings.cache,
            timeout_s=suite.timeout_s,
            echo=echo,
        )
    if isinstance(found, Failure) or suite.build or inputs.launch != "{cmd}":
        return found  # a build may yet install it; behind `launch` there may be another file system
    return _checked(found, suite)


def _checked(interpreter: Interpreter, suite: Suite) -> Interpreter | Failure:
    for module, package in (("pytest", "pytest"), ("pytest_benchmark", "pytest-benchmark")):
        if environment.lacks(interpreter, module, process.scrubbed(os.environ)):
            place = f"{suite.environment} lacks it" if suite.environment else f"{interpreter.python} has none"
            return Failure(f"results = {suite.results!r} needs {package}, and {place}")
    return interpreter


def _built(inputs: Inputs, ready: Ready, settings: Settings, *, recipe: str, echo: Echo) -> Ready | Failure:
    """The build's results laid over the checkout: from the cache, or made now."""
    kept = settings.cache / "builds" / inputs.suite.name / _digest(recipe, str(ready.folder))[:32]
    kept.parent.mkdir(parents=True, exist_ok=True)
    with ownership.exclusive(kept.parent / ".lock", patience_s=inputs.suite.timeout_s + 60):
        if kept.is_dir():
            kept.touch()
            sharing.copy_over(kept, ready.folder)
            for place in (ready.source, ready.folder / "overlay"):
                sharing.share(place, ready.interpreter.subject)
            return Ready(ready.folder, ready.source, _on_top(ready), cached=True)
        failure = _remembered(kept, inputs.session) or _make(inputs, ready, echo)
        if failure:
            _remember(kept, inputs.session, failure)
            return failure
        sharing.reopen(ready.folder, ready.interpreter.subject)
        _keep(ready.folder, kept)
    built = Ready(ready.folder, ready.source, _on_top(ready))
    lacking = _checked(built.interpreter, inputs.suite) if inputs.launch == "{cmd}" else None
    return lacking if isinstance(lacking, Failure) else built


def _on_top(ready: Ready) -> Interpreter:
    below = ready.interpreter
    return Interpreter(ready.folder / "overlay" / "bin" / "python", below.key, below.subject)


def _make(inputs: Inputs, ready: Ready, echo: Echo) -> Failure | None:
    suite, name = inputs.suite, f"{inputs.suite.name} {inputs.sha[:9]}: build"
    laid = overlay.lay(ready.interpreter, ready.folder / "overlay", ready.source)
    if isinstance(laid, Failure):
        return laid
    echo(f"{name}: {suite.build}")
    ended = process.run(
        process.wrapped(suite.build, inputs.launch),
        folder=ready.source,
        environment=command_environment(laid, home=ready.folder / "home", network=True),
        timeout_s=suite.timeout_s,
        subject=laid.subject,
        log=ready.folder / "build.log",
        progress=every(15, lambda elapsed, line: echo(f"{name}: {elapsed:.0f} s, {line}")),
    )
    if ended.code == 0 and not ended.timed_out:
        return None
    echo(f"{name}: {ended.how()}")
    for said in ended.tail.splitlines()[-TOLD_LINES:]:
        echo(f"  | {said}")
    return Failure(f"build = {suite.build!r} {ended.how()}", ended.tail)


def command_environment(interpreter: Interpreter, *, home: Path, network: bool = False) -> dict[str, str]:
    """What every command of a suite sees: the environment's programs first, nothing secret. home: the subject's."""
    kept = environment.as_subject(process.scrubbed(os.environ, network=network), interpreter.subject, home=home)
    prefix = interpreter.programs.parent
    return (
        kept
        | ({"VIRTUAL_ENV": str(prefix)} if (prefix / "pyvenv.cfg").is_file() else {})
        | {
            "PATH": os.pathsep.join((str(interpreter.programs), *filter(None, [kept.get("PATH", "")]))),
            "PYTHONUNBUFFERED": "1",
            # Compiled bytecode is trusted by time and size, and checkouts of two commits may agree in both.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
    )


def _keep(folder: Path, kept: Path) -> None:
    new = kept.parent / ".new"
    if new.exists():
        ownership.remove_tree(new)  # a killed run began it; the lock is held
    try:
        for part in ("source", "overlay"):
            sharing.copy_over(folder / part, new / part)
        new.rename(kept)
    finally:
        if new.exists():
            ownership.remove_tree(new)
    others = sorted((p for p in kept.parent.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in others[KEPT_BUILDS:]:
        ownership.remove_tree(old)


def _remembered(kept: Path, session: str) -> Failure | None:
    try:
        body = json.loads(kept.with_suffix(".failed").read_text("utf-8"))
        return Failure(body["reason"], body["log_tail"]) if body["session"] == session else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remember(kept: Path, session: str, failure: Failure) -> None:
    body = {"session": session, "reason": failure.reason, "log_tail": failure.log_tail, "at": time.time()}
    kept.with_suffix(".failed").write_text(json.dumps(body), "utf-8")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
