"""Is this machine fit to be a node? It is looked at, and nothing of it is changed."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import sysconfig
from pathlib import Path

from perfci.bench import cpu, devices, gpu
from perfci.bench.gpu import Gpu
from perfci.runner import server
from perfci.runner.binding import LEEWAY_S
from perfci.runner.findings import Finding, Level, fail, ok, warn

_GB = 1e9
# Two environments, one of them with torch, then caches of sources, builds and compiled kernels.
_ENOUGH_BYTES, _LEAST_BYTES = 20 * _GB, 8 * _GB
# A worker that finds its own torch needs little.
_LEAST_WITHOUT_TORCH_BYTES = 1 * _GB
_SKEW_TOLD_S = 30.0


def programs() -> tuple[Finding, ...]:
    """What building and measuring need of the system."""
    found = [_python()]
    if shutil.which("git"):
        found.append(ok("git", shutil.which("git") or ""))
    else:
        found.append(fail("git", "there is none", next_step="install git"))
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    if compiler and headers:
        found.append(ok("compiler", f"{compiler}, with Python's headers"))
    else:
        lacking = "Python's headers are missing" if compiler else "there is no C compiler"
        found.append(
            warn("compiler", f"{lacking}, and Triton compiles with it", next_step="install gcc and python3-dev")
        )
    return tuple(found)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] not in ((3, 11), (3, 12)):
        return fail("python", f"this is {version}", next_step="use Python 3.11 or 3.12")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        return fail("python", f"{version} cannot make environments", next_step="install python3-venv")
    return ok("python", version)


def disk(folder: Path, *, with_torch: bool) -> Finding:
    """Room where the node will live."""
    place = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / _GB:.0f} GB free at {place}"
    if free < (_LEAST_BYTES if with_torch else _LEAST_WITHOUT_TORCH_BYTES):
        return fail("disk", text, next_step="make room, or choose another --folder")
    if free < _ENOUGH_BYTES:
        return warn("disk", text, next_step="a night of many commits may need more than that")
    return ok("disk", text)


def processors() -> tuple[Finding, ...]:
    """The devices, with clocks and power as they are set."""
    found = gpu.gpus()
    driver = gpu.driver_version()
    if not found and driver:
        return (
            fail(
                "gpu",
                f"driver {driver} is there, and no device that this user may open",
                next_step="look at nvidia-smi; in a container, start it with --gpus",
            ),
        )
    if not found:
        model = cpu.parse_cpuinfo(cpu.cpuinfo()).model or "unknown"
        return (warn("gpu", f"there is none; this node measures on its CPU ({model})", next_step="fine for a trial"),)
    told = [ok("driver", f"{driver or 'unknown'}, CUDA up to {gpu.cuda_version() or 'unknown'}")]
    return (*told, *(finding for device in found for finding in _device(device)))


def _device(device: Gpu) -> tuple[Finding, ...]:
    what = f"gpu {device.index}"
    settings = " ".join(f"{key}={value}" for key, value in gpu.settings(device).items())
    found = [ok(what, f"{device.model}{f' ({settings})' if settings else ''}, {device.uuid}")]
    default = device.default_power_cap_w
    if device.power_cap_w is not None and default is not None and abs(device.power_cap_w - default) >= 1:
        found.append(
            warn(
                what,
                f"its power is capped at {device.power_cap_w:.0f} W, {default:.0f} W is the default",
                next_step="it counts as another hardware as long as that is so",
            )
        )
    if others := devices.busy((device,)):
        found.append(warn(what, f"in use by {', '.join(others)[:200]}", next_step="jobs wait for it; end that process"))
    return tuple(found)


def reach(server_url: str, airflow_url: str, *, otherwise: Level) -> tuple[Finding, ...]:
    """The ways to the control plane, and its clock. otherwise: how bad it is that there is no answer."""
    found: list[Finding] = []
    for what, answer in (("server", server.health(server_url)), ("airflow", server.edge(airflow_url))):
        if answer.problem:
            step = "is it running there, and does a firewall let this box out to it?"
            found.append(Finding(what, otherwise, answer.problem, step))
            continue
        version = f" (perfci {answer.version})" if answer.version else ""
        found.append(ok(what, f"{answer.url} answers{version}"))
        if answer.skew_s is not None and not any(each.what == "clock" for each in found):
            found.append(clock(answer.skew_s))
    return tuple(found)


def clock(skew_s: float) -> Finding:
    """skew_s: this clock less the server's."""
    text = f"{abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the server's"
    if abs(skew_s) < 2:  # the server tells whole seconds
        return ok("clock", "agrees with the server's")
    if abs(skew_s) > LEEWAY_S:
        return fail("clock", f"{text}: its tokens are refused", next_step="set up NTP on this box")
    if abs(skew_s) > _SKEW_TOLD_S:
        return warn("clock", text, next_step="set up NTP on this box")
    return ok("clock", text)
