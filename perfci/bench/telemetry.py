"""What happened on the device while it was measured: clocks, heat, power, throttling, and who else was there.

A thread looks at the device twice a second, and only inside a `window`: outside of the timed parts a device idles,
and its idle clocks would hide what the timing saw. A look costs a fraction of a millisecond of one core and, being a
call into the driver or a read of /proc, holds no lock of Python's. On a CPU the processes are counted where a window
begins and where it ends, outside of what is timed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfci.bench import gpu, probe
from perfci.bench.gpu import Gpu, Reading
from perfci.model import Telemetry

_INTERVAL_SECONDS = 0.5
_PROC = Path("/proc")

# A fifth of a core is more than a system's own housekeeping takes, and enough to move a CPU's numbers.
_BUSY_SHARE = 0.2
_TOLD_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class Ticks:
    """Processor time so far, in the kernel's ticks.

    own: of this process, its threads and its children. busy: of the whole machine. stolen: by the other guests of the
    same host.
    names: of the other processes, by number.
    """

    own: int
    busy: int
    stolen: int
    others: Mapping[int, int]
    names: Mapping[int, str]


class Recorder:
    """Watches from `start` to `stop`; `windows` tell when it matters."""

    def __init__(self, *, interval: float = _INTERVAL_SECONDS) -> None:
        self._devices: tuple[Gpu, ...] = gpu.gpus()
        self._before = frozenset(process.pid for process in gpu.processes(self._devices))
        self._interval = interval
        self._readings: list[Reading] = []
        self._strangers: dict[int, str] = {}
        self._loads: list[float] = []
        self._busy = Busyness()
        self._open = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="perfci-telemetry", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> Telemetry:
        self._stopped.set()
        self._open.set()
        if self._thread.is_alive():
            self._thread.join()
        return self.seen()

    def seen(self) -> Telemetry:
        """Until now; outside of a window."""
        others = (*list(self._strangers.values()), *self._busy.told())
        return summarize(list(self._readings), others=others, loads=list(self._loads))

    @contextmanager
    def window(self) -> Iterator[None]:
        """Inside of it the device is at work for the measurement. Windows do not nest."""
        started, begin = time.monotonic(), None if self._devices else ticks()
        self._open.set()
        try:
            yield
        finally:
            self._open.clear()
            self._look()  # clocks are still up now, and a short window may have had no look of the thread's
            seconds = time.monotonic() - started
            if begin is not None and (end := ticks()) is not None:
                self._busy.add(begin, end, seconds=seconds)

    def _watch(self) -> None:
        while not self._stopped.wait(self._interval):
            if self._open.is_set():
                self._look()
            else:
                self._open.wait()

    def _look(self) -> None:
        self._loads.append(os.getloadavg()[0])
        if not self._devices:
            return
        self._readings += [gpu.read(device) for device in self._devices]
        for process in probe.strangers(self._before, gpu.processes(self._devices), os.getpid()):
            self._strangers[process.pid] = probe.label(process)


def summarize(readings: Sequence[Reading], *, others: Sequence[str], loads: Sequence[float]) -> Telemetry:
    return Telemetry(
        sm_clock_hz=_range([reading.sm_clock_hz for reading in readings]),
        memory_clock_hz=_range([reading.memory_clock_hz for reading in readings]),
        temperature_c=_range([reading.temperature_c for reading in readings]),
        power_w=_range([reading.power_w for reading in readings]),
        throttled=tuple(sorted({name for reading in readings for name in reading.throttled})),
        others=tuple(_printable(other) for other in others[:_TOLD_AT_ONCE]),
        load_average=max(loads, default=None),
    )


class Busyness:
    """Adds up, over the windows, how much of a core others took."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._ticks: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._hidden = 0
        self._stolen = 0

    def add(self, begin: Ticks, end: Ticks, *, seconds: float) -> None:
        self._seconds += seconds
        # A number that is used again may show fewer ticks than before.
        grown = {pid: max(0, count - begin.others.get(pid, 0)) for pid, count in end.others.items()}
        for pid, count in grown.items():
            self._ticks[pid] = self._ticks.get(pid, 0) + count
        self._names |= end.names
        self._stolen += max(0, end.stolen - begin.stolen)
        self._hidden += max(0, end.busy - begin.busy - (end.own - begin.own) - sum(grown.values()))

    def told(self) -> tuple[str, ...]:
        """`name (number): 57 % of a core`, the busiest first; nothing below a fifth of a core."""
        told = [
            (count, f"{self._names.get(pid, '') or 'process'} ({pid})") for pid, count in sorted(self._ticks.items())
        ]
        told += [
            (self._hidden, "processes that ended or cannot be seen"),
            (self._stolen, "other virtual machines"),
        ]
        shares = sorted(((self._share(count), name) for count, name in told), reverse=True)
        return tuple(f"{name}: {100 * share:.0f} % of a core" for share, name in shares if share >= _BUSY_SHARE)

    def _share(self, count: int) -> float:
        return count / _ticks_per_second() / self._seconds if self._seconds > 0 else 0.0


def ticks() -> Ticks | None:
    """None where there is no /proc."""
    total = parse_stat(_text(_PROC / "stat"))
    if total is None:
        return None
    others: dict[int, int] = {}
    names: dict[int, str] = {}
    own = 0
    for folder in _PROC.glob("[0-9]*"):
        parsed = parse_process_stat(_text(folder / "stat"))
        if parsed is None:
            continue  # it ended meanwhile
        name, count, parent = parsed
        if os.getpid() in {int(folder.name), parent}:
            own += count
        else:
            others[int(folder.name)], names[int(folder.name)] = count, name
    return Ticks(own=own, busy=total[0], stolen=total[1], others=others, names=names)


def parse_stat(text: str) -> tuple[int, int] | None:
    """Of /proc/stat: (busy, stolen) ticks of all cores together. Busy has no idle, waiting or stolen time in it."""
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "cpu" and len(words) >= 9:
            user, nice, system, _idle, _waiting, irq, soft, stolen = (int(word) for word in words[1:9])
            return user + nice + system + irq + soft, stolen
    return None


def parse_process_stat(text: str) -> tuple[str, int, int] | None:
    """Of /proc/*/stat: name, ticks and the parent's number. The name may itself hold blanks and brackets."""
    start, end = text.find("("), text.rfind(")")
    fields = text[end + 1 :].split()
    if start < 0 or end < start or len(fields) < 13:
        return None
    return text[start + 1 : end], int(fields[11]) + int(fields[12]), int(fields[1])


def _ticks_per_second() -> int:
    return os.sysconf("SC_CLK_TCK")


def _range(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:500]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
