"""What NVIDIA's management library says about the GPUs; without it, what the driver leaves below /proc.

No import of torch here: a process that only asks what is there gets no context on the device. The library is found
by nvidia-ml-py (`pynvml`), which a suite's environment may lack.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

_DRIVER = Path("/proc/driver/nvidia")
_DEVICES = Path("/dev")

# Numbers of nvml.h, so that they need no library.
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0

# Bits of nvmlDeviceGetCurrentClocksEventReasons. Idle (0x1), application clocks (0x2) and display clocks (0x100) say
# nothing about a device that is at work.
_THROTTLE = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as it is set. Watts, bytes, hertz; None where the device does not say.

    partition: name of its MIG slice, e.g. `1g.18gb`; empty: the whole device.
    """

    index: int
    uuid: str
    model: str
    memory_bytes: int | None = None
    power_cap_w: float | None = None
    default_power_cap_w: float | None = None
    partition: str = ""
    ecc: bool | None = None
    persistence: bool | None = None
    max_sm_clock_hz: float | None = None
    max_memory_clock_hz: float | None = None


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    name: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What changes while a device works. Hertz, degrees Celsius, watts; None where the device does not say."""

    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    throttled: tuple[str, ...] = ()


def gpus() -> tuple[Gpu, ...]:
    """The devices that this process may use, in its own order: CUDA_VISIBLE_DEVICES is honoured."""
    found = _nvml_gpus()
    return visible(found if found is not None else _driver_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(found: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """`setting` as CUDA reads it: numbers or (abbreviated) UUIDs, up to the first that does not exist."""
    # Where every device is cut into slices, CUDA offers the first slice alone.
    whole = [gpu for gpu in found if not gpu.partition] or list(found[:1])
    if setting is None:
        return tuple(whole)
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry.isdigit():
            match = whole[int(entry)] if int(entry) < len(whole) else None
        else:
            match = next((gpu for gpu in found if entry and gpu.uuid.startswith(entry)), None)
        if match is None:
            break
        chosen.append(match)
    return tuple(chosen)


def driver_version() -> str:
    return str(_ask("nvmlSystemGetDriverVersion") or "") or parse_driver_version(_text(_DRIVER / "version"))


def cuda_version() -> str:
    """The newest CUDA that the driver can run, e.g. `13.0`."""
    number = _ask("nvmlSystemGetCudaDriverVersion")
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""


def processes(chosen: Sequence[Gpu]) -> tuple[Process, ...]:
    """Whatever computes on these devices, this process included. In a container, numbers may be the host's."""
    found: dict[int, Process] = {}
    for gpu in chosen:
        handle = _ask("nvmlDeviceGetHandleByIndex", gpu.index)
        for entry in (_ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()) if handle else ():
            name = _ask("nvmlSystemGetProcessName", entry.pid)
            found[entry.pid] = Process(entry.pid, Path(str(name)).name if name else "")
    return tuple(found[pid] for pid in sorted(found))


def read(gpu: Gpu) -> Reading:
    handle = _ask("nvmlDeviceGetHandleByIndex", gpu.index)
    if handle is None:
        return Reading()
    reasons = _ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # the name until driver 535
        reasons = _ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return Reading(
        sm_clock_hz=_scaled(_ask("nvmlDeviceGetClockInfo", handle, _CLOCK_SM), 1e6),
        memory_clock_hz=_scaled(_ask("nvmlDeviceGetClockInfo", handle, _CLOCK_MEMORY), 1e6),
        temperature_c=_scaled(_ask("nvmlDeviceGetTemperature", handle, _TEMPERATURE_GPU), 1.0),
        power_w=_scaled(_ask("nvmlDeviceGetPowerUsage", handle), 1e-3),
        throttled=throttle_names(int(reasons or 0)),
    )


def throttle_names(bits: int) -> tuple[str, ...]:
    return tuple(name for bit, name in _THROTTLE.items() if bits & bit)


def settings(gpu: Gpu) -> Mapping[str, str]:
    """What an administrator sets and what moves the speed."""
    found = {
        "ecc": None if gpu.ecc is None else "on" if gpu.ecc else "off",
        "persistence": None if gpu.persistence is None else "on" if gpu.persistence else "off",
        "power_cap": None if gpu.power_cap_w is None else f"{gpu.power_cap_w:.0f}W",
        "sm_clock_limit": None if gpu.max_sm_clock_hz is None else f"{gpu.max_sm_clock_hz / 1e6:.0f}MHz",
        "memory_clock_limit": None if gpu.max_memory_clock_hz is None else f"{gpu.max_memory_clock_hz / 1e6:.0f}MHz",
    }
    return {key: value for key, value in found.items() if value}


def parse_driver_version(text: str) -> str:
    """Of /proc/driver/nvidia/version; empty when there is none in it."""
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", text)
    return match[1] if match else ""


def parse_information(text: str, *, index: int) -> Gpu | None:
    """Of /proc/driver/nvidia/gpus/*/information."""
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    model = fields.get("Model", "").strip()
    return Gpu(index=index, uuid=fields.get("GPU UUID", "").strip(), model=model) if model else None


def _driver_gpus() -> tuple[Gpu, ...]:
    """A container may see the folder of a device without the right to open it."""
    if not any(_DEVICES.glob("nvidia[0-9]*")):
        return ()
    texts = (_text(path) for path in sorted(_DRIVER.glob("gpus/*/information")))
    return tuple(gpu for index, text in enumerate(texts) if (gpu := parse_information(text, index=index)))


def _nvml_gpus() -> tuple[Gpu, ...] | None:
    if _library() is None:
        return None
    found: list[Gpu] = []
    for index in range(_ask("nvmlDeviceGetCount") or 0):
        handle = _ask("nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            whole = _describe(handle, index)
            found += _slices(handle, whole) or [whole]
    return tuple(found)


def _describe(handle: Any, index: int) -> Gpu:
    memory = _ask("nvmlDeviceGetMemoryInfo", handle)
    ecc = _ask("nvmlDeviceGetEccMode", handle)
    persistence = _ask("nvmlDeviceGetPersistenceMode", handle)
    return Gpu(
        index=index,
        uuid=str(_ask("nvmlDeviceGetUUID", handle) or ""),
        model=str(_ask("nvmlDeviceGetName", handle) or "unknown"),
        memory_bytes=None if memory is None else int(memory.total),
        power_cap_w=_scaled(_ask("nvmlDeviceGetEnforcedPowerLimit", handle), 1e-3),
        default_power_cap_w=_scaled(_ask("nvmlDeviceGetPowerManagementDefaultLimit", handle), 1e-3),
        ecc=None if ecc is None else bool(ecc[0]),
        persistence=None if persistence is None else bool(persistence),
        max_sm_clock_hz=_scaled(_ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM), 1e6),
        max_memory_clock_hz=_scaled(_ask("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_MEMORY), 1e6),
    )


def _slices(handle: Any, whole: Gpu) -> list[Gpu]:
    """A device that is cut into MIG slices can be used by the slice alone."""
    mode = _ask("nvmlDeviceGetMigMode", handle)
    found: list[Gpu] = []
    for number in range((_ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0) if mode and mode[0] else 0):
        part = _ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
        if part is not None:
            name = str(_ask("nvmlDeviceGetName", part) or "")
            memory = _ask("nvmlDeviceGetMemoryInfo", part)
            partition = name.rsplit("MIG", 1)[-1].strip() or "mig"
            uuid = str(_ask("nvmlDeviceGetUUID", part) or "")
            size = None if memory is None else int(memory.total)
            found.append(replace(whole, uuid=uuid, partition=partition, memory_bytes=size))
    return found


@cache
def _library() -> Any:
    """pynvml, started once and for as long as the process lives; None without the package or without a driver."""
    try:
        import pynvml  # noqa: PLC0415  a suite's environment may lack it
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _ask(question: str, *arguments: Any) -> Any:
    """None where library or device do not know the question, or this process may not ask it."""
    nvml = _library()
    function = getattr(nvml, question, None)
    if function is None:
        return None
    try:
        answer = function(*arguments)
    except nvml.NVMLError:
        return None
    return answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(value) * factor


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
