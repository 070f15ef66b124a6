"""Which hardware, node and environment is this? Asked around and in the measured process; never imports torch."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perfci.bench import cpu, gpu, process
from perfci.bench.gpu import Gpu, Process
from perfci.bench.subject import Subject
from perfci.config import HardwareRule
from perfci.model import Environment, Hardware, Node

_GIB = 1 << 30
_TOLD_AT_ONCE = 8  # devices whose UUIDs fit into one node's line

# Run by the environment's own Python, with nothing but the standard library. torch.version is read as text: importing
# torch takes seconds and a context on the device.
_ASK_VERSIONS = """
import importlib.util, json, platform, re
from importlib import metadata
from pathlib import Path
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
cuda = ""
spec = importlib.util.find_spec("torch")
for folder in (spec.submodule_search_locations or ()) if spec else ():
    path = Path(folder, "version.py")
    found = re.search(r"^cuda[^=]*= *['\\"]([0-9.]+)", path.read_text(), re.M) if path.is_file() else None
    cuda = found[1] if found else cuda
print(json.dumps({"torch": version("torch"), "triton": version("triton"), "cuda": cuda,
                  "python": platform.python_version()}))
"""
_ASK_SECONDS = 60


def hardware(rules: Mapping[str, HardwareRule] | None = None, *, most: int | None = None) -> Hardware:
    """The class of device that a process started here would measure on; named by the settings where a rule matches.

    most: so many devices at most, as a job has that claims them."""
    devices = gpu.gpus()[:most]
    found = gpu_hardware(devices) if devices else cpu_hardware(cpu.parse_cpuinfo(cpu.cpuinfo()), cpu.usable_cores())
    return named(found, rules or {})


def named(found: Hardware, rules: Mapping[str, HardwareRule]) -> Hardware:
    """`found` under the name that the settings give it.

    A rule whose name is the found one wins; else the rule with the longest `match` in the model, then the shortest
    name. More devices than one, a partition or a changed power cap stay in the name: they are another hardware.
    """
    matching = [rule for rule in rules.values() if rule.match and rule.match.lower() in found.model.lower()]
    if not matching or found.name in rules:
        return found
    rule = min(matching, key=lambda rule: (-len(rule.match), len(rule.name)))
    suffix = _suffix(found)
    return replace(found, name=rule.name if rule.name.endswith(suffix) else rule.name + suffix)


def node() -> Node:
    """PERFCI_NODE names the box where its own name changes, as in a container."""
    uuids = [device.uuid for device in gpu.gpus()]
    return Node(
        name=os.environ.get("PERFCI_NODE") or socket.gethostname() or "unknown",
        device_uuid=",".join(uuids[:_TOLD_AT_ONCE]),
    )


def environment(python: str = sys.executable, *, subject: Subject | None = None) -> Environment:
    """Versions in the environment of the interpreter `python`, run as `subject`, and settings of the device.

    An interpreter that cannot be asked leaves its versions empty.
    """
    versions = _versions(python, subject)
    devices = gpu.gpus()
    settings = gpu.settings(devices[0]) if devices else cpu.settings()
    return Environment(
        driver=gpu.driver_version() if devices else "",
        cuda=versions.get("cuda", "") or (gpu.cuda_version() if devices else ""),
        torch=versions.get("torch", ""),
        triton=versions.get("triton", ""),
        python=versions.get("python", ""),
        os_kernel=platform.release(),
        image=os.environ.get("PERFCI_IMAGE", ""),
        device=" ".join(f"{key}={value}" for key, value in settings.items()),
    )


def devices() -> frozenset[str]:
    """UUIDs of the GPUs that a process started here would use. One that fell off the bus is not among them."""
    return frozenset(device.uuid for device in gpu.gpus())


def gpu_present() -> bool:
    return bool(gpu.gpus())


def other_processes() -> tuple[str, ...]:
    """Who else computes on the devices that this process would use, as `name (process number)`; empty on a CPU."""
    return tuple(label(process) for process in gpu.processes(gpu.gpus()) if process.pid != os.getpid())


def label(process: Process) -> str:
    return f"{process.name or 'process'} ({process.pid})"


def strangers(before: Collection[int], now: Sequence[Process], own: int) -> tuple[Process, ...]:
    """Of the processes on a device `now`, those that are not this one.

    before: the numbers that were there when this process had not touched the device yet. In a container the numbers
    are the host's, and `own` is not among them: then the first newcomer is taken for this process.
    """
    others = [process for process in now if process.pid != own]
    if len(others) < len(now):
        return tuple(others)
    newcomers = [process for process in others if process.pid not in before]
    return tuple(process for process in others if process is not (newcomers[0] if newcomers else None))


def gpu_hardware(devices: Sequence[Gpu]) -> Hardware:
    """devices: not empty; of several models, those of the first count."""
    first = devices[0]
    found = Hardware(
        name="",
        model=first.model,
        count=sum(device.model == first.model for device in devices),
        memory_bytes=None if first.memory_bytes is None else round(first.memory_bytes / _GIB) * _GIB,
        power_cap_w=None if first.power_cap_w is None else float(round(first.power_cap_w)),
        partition=first.partition,
    )
    default = first.default_power_cap_w
    capped = found.power_cap_w is not None and default is not None and abs(found.power_cap_w - default) >= 1
    partition = " ".join((first.partition, f"{found.power_cap_w:.0f}W" if capped else "")).strip()
    found = replace(found, partition=partition)
    return replace(found, name=gpu_slug(first.model) + _suffix(found))


def cpu_hardware(found: cpu.Cpu, cores: int) -> Hardware:
    """The box's memory is left out: it moves no kernel's speed, and a virtual machine's total changes by itself."""
    return Hardware(name=f"cpu-{found.name}-{cores}c", model=found.model, count=1)


def gpu_slug(model: str) -> str:
    """`NVIDIA H200` is `h200`, `NVIDIA A100-SXM4-40GB` is `a100-sxm4-40gb`."""
    words = [word for word in re.split(r"[^a-z0-9]+", model.lower()) if word not in {"", "nvidia", "tesla", "geforce"}]
    return "-".join(words) or "gpu"


def _suffix(found: Hardware) -> str:
    count = f"-x{found.count}" if found.count > 1 else ""
    partition = re.sub(r"[^a-z0-9.]+", "-", found.partition.lower()).strip("-")
    return count + (f"-{partition}" if partition else "")


def _versions(python: str, subject: Subject | None) -> dict[str, str]:
    program = str(Path(python).absolute()) if os.sep in python else python
    try:
        answer = json.loads(_said((program, "-c", _ASK_VERSIONS), subject))
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return {str(key): str(value) for key, value in answer.items()}


def _said(command: tuple[str, ...], subject: Subject | None) -> str:
    # In the root folder: in one of the suite's, a `torch.py` of its own would be found first.
    if subject is None:
        done = subprocess.run(
            command, cwd="/", capture_output=True, text=True, timeout=_ASK_SECONDS, check=True, stdin=subprocess.DEVNULL
        )
        return done.stdout
    ended = process.run(
        command,
        folder=Path("/"),
        environment=process.scrubbed(os.environ),
        timeout_s=_ASK_SECONDS,
        log=Path(os.devnull),
        subject=subject,
    )
    return ended.tail.rpartition("\n")[2]
