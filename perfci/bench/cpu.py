"""What Linux says about a CPU. The parsers take the text of its files, so that recorded machines test them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_SYSTEM = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")

_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™©]", re.IGNORECASE)
_CLOCK = re.compile(r"@.*$")
_CORE_COUNT = re.compile(r"\b(?:\d+|dual|quad|six|eight|twelve|sixteen)-core\b", re.IGNORECASE)
# Words that are on every label and tell nothing.
_FILLER = frozenset({"intel", "amd", "arm", "cpu", "processor", "genuine", "authentic", "with", "radeon", "graphics"})


@dataclass(frozen=True, slots=True)
class Cpu:
    """model: the name as the maker gives it, without trademark signs and nominal clock.

    name: slug of the model. Where a hypervisor hides the model number, family and model number of the architecture
    stand in for it. Frequencies, microcode and bug lists are left out of both: they change on one machine.
    """

    model: str
    name: str


def parse_cpuinfo(text: str) -> Cpu:
    """`text` of /proc/cpuinfo; of an unknown shape: a Cpu named `unknown`."""
    fields = _first_fields(text)
    label = fields.get("model name") or fields.get("cpu model") or fields.get("hardware") or fields.get("cpu") or ""
    if not label and "cpu part" in fields:  # ARM tells numbers alone
        label = f"ARM {fields.get('cpu implementer', '')} {fields['cpu part']}"
    model = " ".join(_CLOCK.sub("", _MARKS.sub(" ", label)).split()) or "unknown"
    words = [w for w in re.split(r"[^a-z0-9]+", _CORE_COUNT.sub(" ", model).lower()) if w and w not in _FILLER]
    if not any(any(c.isdigit() for c in w) for w in words) and fields.get("cpu family") and fields.get("model"):
        words.append(f"f{fields['cpu family']}m{fields['model']}")
    return Cpu(model=model, name="-".join(words) or "unknown")


def cpuinfo() -> str:
    return _text(_CPUINFO)


def available_memory() -> int:
    """Bytes that a process may still take; 1 GiB where the system does not say."""
    return parse_available_memory(_text(_MEMINFO)) or 1 << 30


def parse_available_memory(text: str) -> int:
    """Of /proc/meminfo; 0 when there is none in it."""
    match = re.search(r"^MemAvailable:\s*(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def usable_cores() -> int:
    """Cores that this process may keep busy: its affinity, less what the control group's quota cuts off."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = parse_quota(
        v2=_text(_CGROUP / "cpu.max"),
        v1_quota=_text(_CGROUP / "cpu/cpu.cfs_quota_us"),
        v1_period=_text(_CGROUP / "cpu/cpu.cfs_period_us"),
    )
    return affinity if quota is None else max(1, min(affinity, round(quota)))


def parse_quota(*, v2: str, v1_quota: str, v1_period: str) -> float | None:
    """Cores' worth of time that a control group may use; None: as much as it likes. Texts of its files, or empty."""
    quota, period = v2.split()[:2] if len(v2.split()) > 1 else (v1_quota.strip(), v1_period.strip())
    if not quota.isdigit() or not period.isdigit() or int(quota) <= 0 or int(period) <= 0:
        return None  # "max", -1, or no control group
    return int(quota) / int(period)


def settings() -> Mapping[str, str]:
    """What an administrator sets and what moves the speed; nothing that the CPU changes by itself."""
    found = {
        "governor": _text(_SYSTEM / "cpu0/cpufreq/scaling_governor").strip(),
        "boost": _text(_SYSTEM / "cpufreq/boost").strip(),
        "no_turbo": _text(_SYSTEM / "intel_pstate/no_turbo").strip(),
        "smt": _text(_SYSTEM / "smt/active").strip(),
    }
    return {key: value for key, value in found.items() if value}


def cache_bytes() -> int:
    """Size of the largest cache of the first core; 0 where the system does not say."""
    sizes = (parse_size(_text(path)) for path in _SYSTEM.glob("cpu0/cache/index*/size"))
    return max(sizes, default=0)


def parse_size(text: str) -> int:
    """Bytes of e.g. `32768K`; 0 for anything else."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    if not match:
        return 0
    scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]]
    return int(match[1]) * scale


def _first_fields(text: str) -> dict[str, str]:
    """Of all processors the first value of each key, in lower case: the others differ in clock and number alone."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    return fields


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
