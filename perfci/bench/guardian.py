"""Runs one command and leaves nothing of it behind: `python -I -S guardian.py COMMAND...`.

    runner ── guardian ── command ── whatever it starts
          pipe          own session

The guardian is a Linux child subreaper, so that a process that daemonises stays below it. It kills all that
is below it when the command has ended, when it gets SIGTERM, and when the pipe on its standard input ends:
the runner is gone then, SIGKILL included. It ends with the command's exit code, 128 + n for signal n.

With `--subject MARK` before the command it runs as another user than the runner: a program between them that changes
the user drops the environment, so it comes as a line of JSON on the standard input. `--end MARK PARENT` instead of a
command kills what carries that mark, and what a killed guardian has left to PARENT: only the subject may.

A script of its own, standard library alone: it must start in milliseconds and in any Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
# SIGKILL takes effect once the kernel lets go; a process stuck in a driver may never.
_KILL_LIMIT_S = 10.0


def main(arguments: list[str]) -> int:
    if arguments[0] == "--end":
        end_marked(arguments[1].encode())
        end_left(int(arguments[2]))
        return 0
    command, environment = arguments, None
    if arguments[0] == "--subject":
        command, environment = arguments[2:], _told_environment()
        os.umask(0o002)  # what the command makes is its group's too
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    wake = _wake_on_signals()
    try:
        child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_guardian,  # noqa: PLW1509  one thread here
        )
    except (OSError, subprocess.SubprocessError) as error:
        os.write(2, f"{command[0]} cannot be started: {error}\n".encode())
        return 127
    try:
        return _wait(child, wake)
    finally:
        _kill_all()


def _told_environment() -> dict[str, str]:
    line = b""
    while not line.endswith(b"\n"):
        data = os.read(0, 65536)
        if not data:  # the runner is gone already
            sys.exit(128 + signal.SIGTERM)
        line += data
    told: dict[str, str] = json.loads(line)
    return told


def end_marked(entry: bytes) -> None:
    """Kill every process of this user that has `entry` in its environment or its command line."""
    until = time.monotonic() + _KILL_LIMIT_S
    while (left := [pid for pid in _processes() if entry in _words(pid)]) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def end_left(parent: int) -> None:
    """Kill what a killed guardian has left to `parent`, and what is below that, whatever it did to its environment."""
    until = time.monotonic() + _KILL_LIMIT_S
    while (tops := left_to(parent, os.geteuid())) and time.monotonic() < until:
        for pid in (*tops, *(below for top in tops for below in _below(top))):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def left_to(parent: int, uid: int, *, ended: bool = False) -> list[int]:
    """Children of `parent` that are this user's and live, or that have ended and nobody has waited for."""
    found = []
    for pid in _processes():
        try:
            # Not the owner of the folder in /proc: a process can make that root.
            text = Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
        except OSError:  # gone
            continue
        fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        mine = (int(fields["PPid"]), int(fields["Uid"].split()[0])) == (parent, uid)
        if mine and (fields["State"][0] in "ZX") is ended:
            found.append(pid)
    return found


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """What a guardian leaves behind when it is killed becomes a child of this process."""
    before = ctypes.c_int(0)
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def _processes() -> list[int]:
    return [
        pid for entry in Path("/proc").iterdir() if entry.name.isdigit() and (pid := int(entry.name)) != os.getpid()
    ]


def _words(pid: int) -> list[bytes]:
    """As the process was started with; a zombie has none. Of another user's there is nothing to say but to root."""
    try:
        if os.geteuid() not in (0, Path(f"/proc/{pid}").stat().st_uid):
            return []
        return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("environ", "cmdline")).split(b"\0")
    except OSError:  # gone
        return []


def _wait(child: subprocess.Popen[bytes], wake: int) -> int:
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready and any(number != signal.SIGCHLD for number in os.read(wake, 4096)):
            return 128 + signal.SIGTERM
        code = _reap(child.pid)
        if code is not None:
            child.returncode = code
            return code if code >= 0 else 128 - code
        if 0 in ready and not os.read(0, 4096):
            return 128 + signal.SIGTERM


def _reap(wanted: int = 0) -> int | None:
    """Collect what has ended; the exit code of `wanted` if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == wanted:
            code = os.waitstatus_to_exitcode(status)


def _kill_all() -> None:
    until = time.monotonic() + _KILL_LIMIT_S
    while (below := _below(os.getpid())) and time.monotonic() < until:
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
        _reap()


def _below(top: int) -> list[int]:
    """Living processes that descend from `top`, by /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found: list[int] = []
    level = {top}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        found += level
    return found


def _wake_on_signals() -> int:
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write_end)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return read_end


def _die_with_guardian() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: object) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
