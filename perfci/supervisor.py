"""Child processes as one tree that cannot be orphaned.

    this process ── supervisor ── program ── whatever it starts
        Tree          main()      (own process group)

`Tree` belongs to a command; it starts one supervisor, which starts the programs. The two are joined by a
pipe: when the command is gone, SIGKILL included, the pipe ends and the supervisor kills everything below
it. The supervisor is a Linux child subreaper, so that a grandchild which daemonises stays below it. When
the supervisor itself is killed, its programs die with it (PR_SET_PDEATHSIG), and what they had started
carries a mark in its environment by which `sweep` finds it when the next command starts.

On other systems than Linux the mark alone finds what left the tree.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from perfci.errors import ServiceError

MARK = "PERFCI_TREE"
# What SIGKILL leaves behind needs no longer than the kernel takes to free its memory.
_KILL_LIMIT_S = 20.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


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
    log: what the supervisor itself has to say.
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
            problem = answer["error"] if answer else "the supervisor did not answer"
            raise ServiceError(f"{program.name} could not be started: {problem}", next_step=f"read {self._log}")
        return int(answer["pid"])

    def check(self) -> None:
        """Raises ServiceError when a program has ended by itself, with the last line of its log."""
        while self._receive("", timeout_s=0) is not None:
            pass
        if self._ended:
            ended = self._ended[0]
            program = self._programs[ended.name]
            last = log_end(program.log, lines=1) or "without a word"
            how = f"signal {-ended.code}" if ended.code < 0 else f"code {ended.code}"
            raise ServiceError(f"{ended.name} ended with {how}: {last}", next_step=f"read {program.log}")
        if self._process is not None and self._process.poll() is not None:
            raise ServiceError("the supervisor of the processes is gone", next_step=f"read {self._log}")

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
            raise ServiceError("the supervisor of the processes is gone", next_step=f"read {self._log}") from error

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
            data = os.read(pipe, 65536) if ready else b""
            if not data:
                return None
            self._rest += data


def sweep(mark: str) -> int:
    """Kill every process that carries the mark, except this one and those above it; how many there were."""
    spared = {os.getpid(), *(p.pid for p in psutil.Process().parents())}
    killed: set[int] = set()
    until = time.monotonic() + _KILL_LIMIT_S
    while left := [p for p in _marked(mark) if p.pid not in spared]:
        killed.update(p.pid for p in left)
        _kill(left)
        psutil.wait_procs(left, timeout=0.2)
        if time.monotonic() > until:
            raise ServiceError(
                f"process {left[0].pid} of an earlier run cannot be killed", next_step="end it and start again"
            )
    return len(killed)


def log_end(path: Path, *, lines: int) -> str:
    """The last lines that are not empty; "" when there is no such file."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 65536))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join([line.rstrip() for line in text.splitlines() if line.strip()][-lines:])


def _import_path() -> str:
    """What makes this perfci importable in a child, whatever the folder that it runs in."""
    here = str(Path(__file__).resolve().parent.parent)
    return os.pathsep.join([here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and _alive(process):
                found.append(process)
        except (psutil.Error, OSError):
            continue  # gone meanwhile, or another user's
    return found


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.Error:
            continue


# ------------------------------------------------------------------------------------- in the supervisor


@dataclass(slots=True)
class _Supervisor:
    mark: str
    prctl: Callable[[int, int], None]
    running: dict[int, tuple[str, subprocess.Popen[bytes]]] = field(default_factory=dict)

    def start(self, request: dict[str, Any]) -> None:
        def before_exec() -> None:
            self.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        try:
            with Path(request["log"]).open("ab") as log:
                process = subprocess.Popen(
                    request["command"],
                    env=request["environment"],
                    cwd=request["folder"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=before_exec,  # noqa: PLW1509 - there is one thread here
                )
        except (OSError, subprocess.SubprocessError) as error:
            self.tell(kind="started", pid=0, error=str(error))
            return
        self.running[process.pid] = (request["name"], process)
        self.tell(kind="started", pid=process.pid, error="")

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.running:
                name, process = self.running.pop(pid)
                process.returncode = os.waitstatus_to_exitcode(status)
                self.tell(kind="ended", name=name, code=process.returncode)

    def tell(self, **message: object) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]

    def terminate(self, grace_s: float) -> None:
        for pid in self.running:
            _signal_group(pid, signal.SIGTERM)
        until = time.monotonic() + grace_s
        while self.running and time.monotonic() < until:
            if select.select([0], [], [], 0.02)[0]:
                return  # the end of the pipe: nobody waits any more
            self.reap()

    def kill(self) -> None:
        """Everything below, also what was started while others were killed."""
        me = psutil.Process()
        until = time.monotonic() + _KILL_LIMIT_S
        while time.monotonic() < until:
            below = [p for p in me.children(recursive=True) if _alive(p)]
            below += [p for p in _marked(self.mark) if p.pid != me.pid]
            if not below:
                return
            _kill(below)
            time.sleep(0.01)
            self.reap()


def main() -> int:
    """Requests come as lines of JSON on standard input, whose end means: kill everything, the command is gone."""
    supervisor = _Supervisor(os.environ[MARK], _prctl())
    supervisor.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake_in, wake_out = os.pipe()
    for end in (wake_in, wake_out):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_out)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _do_nothing)  # unlike SIG_IGN, a handler is not inherited by the programs
    signal.signal(signal.SIGTERM, _raise_exit)
    try:
        _serve(supervisor, wake_in)
    except (BrokenPipeError, SystemExit):
        pass  # nobody listens any more, or somebody ended this process alone
    finally:
        signal.signal(signal.SIGTERM, _do_nothing)
        supervisor.kill()
    return 0


def _serve(supervisor: _Supervisor, wake: int) -> None:
    rest = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            supervisor.reap()
        if 0 not in ready:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if "stop" in request:
                supervisor.terminate(request["stop"])
                return
            supervisor.start(request["start"])


def _do_nothing(_number: int, _frame: object) -> None:
    pass


def _raise_exit(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


def _signal_group(pid: int, number: signal.Signals) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _prctl() -> Callable[[int, int], None]:
    if sys.platform != "linux":
        return lambda _option, _value: None
    library = ctypes.CDLL(None, use_errno=True)

    def call(option: int, value: int) -> None:
        library.prctl(option, value, 0, 0, 0)

    return call


if __name__ == "__main__":
    sys.exit(main())
