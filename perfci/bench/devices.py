"""Which devices a job has: claimed by a kernel lock each, and pinned by UUID.

Numbers of devices change with a reboot or a container; UUIDs don't. A lock ends with the process that holds it, so a
killed job frees its devices, and two jobs on one box never measure on the same one.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from perfci.bench import gpu, probe
from perfci.bench.gpu import Gpu
from perfci.errors import DeviceError

Echo = Callable[[str], None]
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# A queued job waits for its turn in Airflow; what still stands in the way here ends soon, or is somebody's night.
PATIENCE_S = 4 * 3600.0
_POLL_S, _TELL_S = 1.0, 60.0


@contextmanager
def claimed(
    count: int, folder: Path, *, echo: Echo = lambda line: None, patience_s: float = PATIENCE_S
) -> Iterator[tuple[str, ...]]:
    """Hold `count` devices that nothing else computes on, and show this process and its children no others.

    Yields their UUIDs; none on a box without a GPU, which one job at a time has as a whole. folder: of the locks.
    Waits while they are in use. Raises DeviceError when there are too few, or they are in use for `patience_s`.
    """
    offered = gpu.gpus()
    if offered and len(offered) < count:
        raise DeviceError(
            f"{count} devices are asked for, and this node has {len(offered)}",
            next_step="send the job to a node that has more, or lower the suite's `devices`",
        )
    folder.mkdir(parents=True, exist_ok=True)
    names = tuple(map(_name, offered))
    with ExitStack() as held:
        chosen = _waited(held, names or ("cpu",), count if names else 1, folder, echo=echo, patience_s=patience_s)
        if not names:
            yield ()
            return
        with _shown(chosen):
            yield chosen


def busy(devices: Sequence[Gpu]) -> tuple[str, ...]:
    """Who computes on these devices, as `name (process number)`."""
    return tuple(probe.label(process) for process in gpu.processes(devices) if process.pid != os.getpid())


def _name(device: Gpu) -> str:
    """As CUDA_VISIBLE_DEVICES takes it."""
    return device.uuid or str(device.index)


def _waited(
    held: ExitStack, names: Sequence[str], count: int, folder: Path, *, echo: Echo, patience_s: float
) -> tuple[str, ...]:
    until, tell_at = time.monotonic() + patience_s, time.monotonic()
    while True:
        chosen = _taken(held, names, count, folder)
        if chosen:
            return chosen
        others = ", ".join(busy(gpu.gpus()))[:200] or "another job"
        what = f"{count} of {len(names)} devices" if names != ("cpu",) else "this box"
        if time.monotonic() > until:
            raise DeviceError(
                f"{what} was in use by {others} for {patience_s:.0f} s", next_step="end that process or wait for it"
            )
        if time.monotonic() >= tell_at:
            tell_at = time.monotonic() + _TELL_S
            echo(f"waiting for {what}: in use by {others}")
        time.sleep(_POLL_S)


def _taken(held: ExitStack, names: Sequence[str], count: int, folder: Path) -> tuple[str, ...]:
    """All of them or none: two jobs that each hold a part would wait for each other."""
    free = {_name(device) for device in gpu.gpus() if not busy((device,))} | {"cpu"}
    chosen: list[str] = []
    with ExitStack() as stack:
        for name in names:
            if len(chosen) < count and name in free and _hold(stack, folder / f"{name.replace('/', '-')}.lock"):
                chosen.append(name)
        if len(chosen) == count:
            held.push(stack.pop_all())
            return tuple(chosen)
    return ()


def _hold(held: ExitStack, path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    held.callback(os.close, descriptor)
    return True


@contextmanager
def _shown(names: Sequence[str]) -> Iterator[None]:
    before = os.environ.get(_VISIBLE)
    os.environ[_VISIBLE] = ",".join(names)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VISIBLE, None)
        else:
            os.environ[_VISIBLE] = before
