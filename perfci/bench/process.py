"""One command in one fresh process, its output kept and nothing of it left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from perfci.bench import guardian
from perfci.bench.subject import Subject
from perfci.errors import DeviceError

LOG_LIMIT_BYTES = 20 * 1024 * 1024
_TAIL_BYTES = 64 * 1024
_TAIL_LINES = 60
_TAIL_CHARACTERS = 12_000
# How long the guardian may take to kill what is below it.
_GRACE_S = 15.0
# What turns on its guardian may turn on who ends it, too.
_ENDINGS = 3
# In the environment of everything that a command starts: its children are found by it where the guardian was killed.
_MARK = "PERFCI_COMMAND"

# What a command may know of the environment that perfci runs in. A list of what is allowed, since nobody can list
# every name under which a token, a database or a cloud account is kept.
_ALLOWED = re.compile(
    "PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|TZ|TMPDIR|TERM|XDG_RUNTIME_DIR|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH|CC|CXX"
    "|PERFCI_TREE"  # no secret: the mark by which a killed service's processes are found (perfci.supervisor)
    "|CFLAGS|CXXFLAGS|LDFLAGS|CUDAHOSTCXX|CUDACXX|MAKEFLAGS|DOCKER_HOST|SSL_CERT_FILE|SSL_CERT_DIR"
    "|(LC|CUDA|NVIDIA|NCCL|OMP|MKL|KMP|OPENBLAS|TORCH|TRITON|SLURM)_.*"
)
# For what installs packages alone.
_NETWORK = re.compile("(https?|no|all)_proxy|(requests|curl)_ca_bundle|PIP_.*", re.IGNORECASE)
_SECRET = re.compile(r"://[^/@\s]+@|TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY", re.IGNORECASE)

# Colours, cursor movements and window titles.
ESCAPE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\^_])")


@dataclass(frozen=True, slots=True)
class Ended:
    """code: as a shell has it, 128 + n for signal n. tail: the last lines of its output, without colours."""

    code: int
    timed_out: bool
    tail: str
    started_at: datetime
    finished_at: datetime

    def how(self) -> str:
        """In words, for a reason."""
        seconds = (self.finished_at - self.started_at).total_seconds()
        if self.timed_out:
            return f"killed after {seconds:.0f} s"
        if self.code <= 128:
            return f"ended with exit code {self.code} after {seconds:.1f} s"
        number = self.code - 128
        name = signal.Signals(number).name if number in {int(s) for s in signal.Signals} else f"signal {number}"
        hint = " (out of memory?)" if number == signal.SIGKILL else ""
        return f"ended by {name}{hint} after {seconds:.1f} s"


def wrapped(command: str, launch: str = "{cmd}") -> tuple[str, ...]:
    """`command` read by sh, started through a hardware's `launch`.

    `srun {cmd}` gets it as arguments of its own; `bash -lc "{cmd}"`, in quotes, as one that a shell can read.
    """
    words = ("/bin/sh", "-c", command)
    bare = "{cmd}" in shlex.split(launch, posix=False)
    found: list[str] = []
    for word in shlex.split(launch):
        found += words if bare and word == "{cmd}" else [word.replace("{cmd}", shlex.join(words))]
    return tuple(found)


def scrubbed(environment: Mapping[str, str], *, network: bool = False) -> dict[str, str]:
    """What of `environment` a command may see; with `network`, also how packages are fetched.

    Whatever looks like a secret by its name or holds a password in a URL is left out.
    """
    kept = {
        key: value
        for key, value in environment.items()
        if _ALLOWED.fullmatch(key) or (network and _NETWORK.fullmatch(key))
    }
    return {key: value for key, value in kept.items() if not _SECRET.search(key) and not _SECRET.search(value)}


def run(
    command: tuple[str, ...],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    log: Path,
    progress: Callable[[float, str], None] = lambda elapsed, line: None,
    subject: Subject | None = None,
) -> Ended:
    """Run `command` in `folder` until it ends or `timeout_s` is over, then kill whatever is left of it.

    environment: all of it. log: gets the output, up to LOG_LIMIT_BYTES; a full disk stops the log, not the command.
    progress: called about every second with the seconds so far and the last line of output. subject: as whom.
    """
    started_at, start = datetime.now(UTC), time.monotonic()
    mark = f"{_MARK}={secrets.token_hex(8)}"
    timed_out, told = False, start
    with guardian.adopting() if subject else contextlib.nullcontext():
        process = _started(command, folder, environment, mark=mark, subject=subject)
        assert process.stdout is not None
        try:
            with _Output(log) as output:
                while _follow(process, output):
                    now = time.monotonic()
                    if now - start > timeout_s:
                        timed_out = True
                        break
                    if now - told >= 1:
                        told = now
                        progress(now - start, output.last_line())
                _stop(process, mark, subject)
                output.drain(process.stdout)
                tail = output.tail()
        finally:
            _stop(process, mark, subject)
            process.stdout.close()
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return Ended(code, timed_out, tail, started_at, datetime.now(UTC))


def _started(
    command: tuple[str, ...], folder: Path, environment: Mapping[str, str], *, mark: str, subject: Subject | None
) -> subprocess.Popen[bytes]:
    watched = (sys.executable, "-I", "-S", guardian.__file__)
    words = (*watched, *command) if subject is None else subject.command((*watched, "--subject", mark, *command))
    environment = {**environment, _MARK: mark.partition("=")[2]}
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # a Ctrl-C on the terminal is the runner's to act on
        **(subject.options() if subject else {}),
    )
    if subject:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # sudo refused; its words are in the output
            process.stdin.write(json.dumps(environment).encode() + b"\n")
            process.stdin.flush()
    return process


def _follow(process: subprocess.Popen[bytes], output: _Output) -> bool:
    """Take what the command wrote; False once it has ended."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], 0.1)
    if ready:
        data = os.read(process.stdout.fileno(), 65536)
        output.take(data)
        if not data:  # it closed its output and may yet run on
            time.sleep(0.02)
    return process.poll() is None


def _stop(process: subprocess.Popen[bytes], mark: str, subject: Subject | None) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()  # the guardian kills everything below it when this pipe ends
    try:
        process.wait(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        _end_as(subject, mark, process.pid)  # sudo is root's, and ends with the guardian
        with contextlib.suppress(PermissionError):
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
    if process.returncode is None:  # a sudo that was stopped together with the guardian: nobody but root can end it
        process.returncode = -signal.SIGKILL
    if process.returncode < 0 or (subject and process.returncode > 128):
        # The command killed its guardian, or stopped it.
        _end_as(subject, mark, process.pid)


def _end_as(subject: Subject | None, mark: str, known: int) -> None:
    """Kill what carries a mark; the subject's processes are its own to look into and to kill. known: the child that
    this process waits for itself. Raises DeviceError where they kill who is to end them."""
    if subject is None:
        guardian.end_marked(mark.encode())
        return
    me = os.getpid()
    for _ in range(_ENDINGS):
        subprocess.run(
            subject.command((sys.executable, "-I", "-S", guardian.__file__, "--end", mark, str(me))),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            **subject.options(),
        )
        for pid in guardian.left_to(me, subject.uid, ended=True):
            if pid != known:
                os.waitpid(pid, os.WNOHANG)
        left = guardian.left_to(me, subject.uid)
        if not left:
            return
    raise DeviceError(
        f"a command has left processes of {subject.name} that cannot be ended ({', '.join(map(str, left))})",
        next_step="end them as root; until then they can disturb what is measured here",
    )


class _Output:
    """A log file that stops at its limit, and the end of the output in memory."""

    def __init__(self, log: Path) -> None:
        self._log, self._left, self._end = log, LOG_LIMIT_BYTES, b""
        self._file: IO[bytes] | None = None

    def __enter__(self) -> _Output:
        with contextlib.suppress(OSError):
            self._file = self._log.open("wb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def take(self, data: bytes) -> None:
        self._end = (self._end + data)[-_TAIL_BYTES:]
        if self._file is None or not data or self._left <= 0:
            return
        try:
            self._left -= self._file.write(data[: self._left])
        except OSError:  # the disk is full: what follows is in memory alone
            self._left = 0

    def drain(self, pipe: IO[bytes]) -> None:
        """What is left in the pipe; nobody need have closed its other end."""
        os.set_blocking(pipe.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(pipe.fileno(), 65536):
                self.take(data)

    def last_line(self) -> str:
        lines = _lines(self._end[-4096:])
        return lines[-1][:200] if lines else ""

    def tail(self) -> str:
        return "\n".join(_lines(self._end)[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]


def _lines(data: bytes) -> list[str]:
    """As a terminal would show them: no escapes, and of what a carriage return overwrote the last alone."""
    lines = []
    for raw in ESCAPE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n").split("\n"):
        shown = raw.rstrip("\r").rpartition("\r")[2]
        line = "".join(c for c in shown if c.isprintable() or c == "\t").rstrip()
        if line:
            lines.append(line)
    return lines
