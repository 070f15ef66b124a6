"""The process between a command and its programs; see the package."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from perfci.supervisor.marks import KILL_LIMIT_S, MARK, alive, kill, marked

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


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
                _clear(session=pid)
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
        self.running.clear()  # their ends are no news any more, and perhaps nobody listens
        me = psutil.Process()
        until = time.monotonic() + KILL_LIMIT_S
        while time.monotonic() < until:
            below = [p for p in me.children(recursive=True) if alive(p)]
            below += [p for p in marked(self.mark) if p.pid != me.pid]
            if not below:
                return
            kill(below)
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


def _clear(*, session: int) -> None:
    """End what a program has left behind: it would stand in the way of the next one, and nobody waits for it."""
    for process in psutil.Process().children(recursive=True):
        try:
            if os.getsid(process.pid) == session and alive(process):
                kill([process])
        except OSError:
            continue  # gone meanwhile


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
