"""The command's end: start programs, hear of their ends, stop them all."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from perfci.errors import ServiceError
from perfci.supervisor.marks import MARK, log_end, sweep

# So much of a log's last line is told; this one, of SQLAlchemy, says nothing.
_LINE = 300
_NOISE = "(Background on this error"


@dataclass(frozen=True, slots=True)
class Program:
    """log: receives what the program prints. environment: all of it; the mark is added."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    log: Path


@dataclass(frozen=True, slots=True)
class Ended:
    """code: as subprocess has it, negative for a signal."""

    name: str
    code: int


class Tree:
    """The programs of one command; leaving the context stops them all, at the latest by SIGKILL.

    mark: tells this tree's processes from all others, e.g. by the state folder. keep: open files that the
    supervisor holds as well, so that a lock outlives a killed command until the last process is gone.
    log: what the supervisor itself has to say. grace_s: between SIGTERM and SIGKILL.
    """

    def __init__(self, mark: str, *, log: Path, keep: Sequence[int] = (), grace_s: float = 5.0) -> None:
        self._mark, self._log, self._keep, self._grace_s = mark, log, tuple(keep), grace_s
        self._process: subprocess.Popen[bytes] | None = None
        self._programs: dict[str, Program] = {}
        self._ended: list[Ended] = []
        self._rest = b""

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "perfci.supervisor"],
                env={**os.environ, MARK: self._mark, "PYTHONPATH": _import_path()},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=self._keep,
                start_new_session=True,  # a Ctrl-C on the terminal is for the command, which then stops the tree
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, program: Program) -> int:
        """The program's process id. Raises ServiceError when it cannot be started."""
        self._programs[program.name] = program
        request = {
            "name": program.name,
            "command": program.command,
            "environment": {**program.environment, MARK: self._mark},
            "folder": str(program.folder),
            "log": str(program.log),
        }
        self._send({"start": request})
        answer = self._receive("started", timeout_s=30)
        if answer is None or answer["error"]:
            problem = answer["error"] if answer else "its supervisor does not answer"
            raise ServiceError(f"{program.name} could not be started: {problem}", next_step=f"read {self._log}")
        return int(answer["pid"])

    def run(self, program: Program, *, limit_s: float) -> int:
        """Start a program that ends by itself, and wait; its exit code. Raises ServiceError after `limit_s`."""
        self.start(program)
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            self._receive("ended", timeout_s=until - time.monotonic())
            for ended in self._ended:
                if ended.name == program.name:
                    self._ended.remove(ended)
                    return ended.code
        raise ServiceError(f"{program.name} took more than {limit_s:g} s", next_step=f"read {program.log}")

    def check(self) -> None:
        """Raises ServiceError when a program has ended by itself, with the last line of its log."""
        try:
            self._listen()
        finally:
            if self._ended:
                raise self.problem(self._ended[0])

    def ended(self) -> tuple[Ended, ...]:
        """Programs that have ended by themselves since this was asked last. Raises ServiceError when the supervisor
        is gone."""
        self._listen()
        found, self._ended = tuple(self._ended), []
        return found

    def problem(self, ended: Ended) -> ServiceError:
        """The end of a program as an error, with the last line of its log."""
        program = self._programs[ended.name]
        said = [line for line in log_end(program.log, lines=5).splitlines() if not line.startswith(_NOISE)]
        last = said[-1][:_LINE] if said else "without a word"
        how = f"signal {-ended.code}" if ended.code < 0 else f"code {ended.code}"
        return ServiceError(f"{ended.name} ended with {how}: {last}", next_step=f"read {program.log}")

    def start_again(self, name: str) -> int:
        """A program that has ended, as it was started before; its new process id. Raises ServiceError."""
        return self.start(self._programs[name])

    def _listen(self) -> None:
        while self._receive("", timeout_s=0) is not None:
            pass

    def stop(self) -> None:
        """SIGTERM to every program, SIGKILL to all that is left after the grace; at once on a second Ctrl-C."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            try:
                process.stdin.write(json.dumps({"stop": self._grace_s}).encode() + b"\n")
                process.stdin.flush()
                process.wait()
            finally:
                process.stdin.close()  # the end of the pipe is the order to kill
                process.wait()
        except BrokenPipeError:
            process.wait()
        finally:
            process.stdout.close()
            sweep(self._mark)

    def _send(self, message: object) -> None:
        if self._process is None or self._process.stdin is None:
            raise ServiceError("the processes are stopped already", next_step="start them again")
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._gone() from error

    def _receive(self, kind: str, *, timeout_s: float) -> dict[str, Any] | None:
        """The next message of that kind ("": any); ends of programs on the way are kept for `check`."""
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        until = time.monotonic() + timeout_s
        while True:
            while b"\n" in self._rest:
                line, self._rest = self._rest.split(b"\n", 1)
                message: dict[str, Any] = json.loads(line)
                if message["kind"] == "ended":
                    self._ended.append(Ended(message["name"], message["code"]))
                if kind in ("", message["kind"]):
                    return message
            ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            data = os.read(pipe, 65536)
            if not data:
                raise self._gone()
            self._rest += data

    def _gone(self) -> ServiceError:
        return ServiceError("the supervisor of the processes is gone", next_step=f"read {self._log}")


def _import_path() -> str:
    """What makes this perfci importable in a child, whatever the folder that it runs in."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
