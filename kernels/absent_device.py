"""A GPU that is not there: what an implementation launches is compiled for it and written down, and nothing runs.

    with absent_device.installed(90) as device:
        step = prepare(workload, weights, inputs)  # tensors of device "meta": types, shapes, strides, no memory
        step()
    device.launches

It stands where Triton looks for a driver and where PyTorch looks for CUDA's properties, streams and graphs, so that the
launching code of an implementation runs as it is. A process that has TRITON_INTERPRET set cannot do it: Triton decides
at import whether kernels are compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget

# Bytes of shared memory that one block can have, and multiprocessors, as of A100, A10, L4, H200 and B200.
_DEVICES = {80: (166912, 108), 86: (101376, 72), 89: (101376, 58), 90: (232448, 132), 100: (232448, 148)}


@dataclass(frozen=True, slots=True)
class Compiled:
    """One launch: the kernel's name, its grid and warps, and what it was compiled to.

    ptx, cubin: text, and machine code. shared_bytes: what the launch asks for; ptxas does not know it.
    """

    kernel: str
    grid: tuple[int, int, int]
    warps: int
    ptx: str
    cubin: bytes
    shared_bytes: int


class AbsentDevice:
    """Triton's driver and its `utils` in one. Raises ValueError for an architecture whose sizes are not known here."""

    def __init__(self, architecture: int) -> None:
        if architecture not in _DEVICES:
            raise ValueError(f"sm_{architecture}: its sizes are not known; there are {sorted(_DEVICES)}")
        self.architecture = architecture
        self.launches: list[Compiled] = []
        self._files: Mapping[str, str] = {}

    @property
    def utils(self) -> AbsentDevice:
        return self

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        """Triton keeps what it compiled by device number, so each architecture is a device of its own."""
        return self.architecture

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        shared, multiprocessors = _DEVICES[self.architecture]
        return {"max_shared_mem": shared, "multiprocessor_count": multiprocessors, "warpSize": 32}

    def loading(self, module: object, function: object, name: str, files: Mapping[str, str], key: str) -> None:
        """Triton's hook before it loads a kernel: where its texts are."""
        self._files = files

    def load_binary(self, name: str, cubin: bytes, shared: int, device: int) -> tuple[object, object, int, int, int]:
        """(module, function, registers, spills, threads that a block may have); here the function is its code."""
        ptx = next(Path(path) for file, path in self._files.items() if file.endswith(".ptx"))
        return name, (ptx.read_text(), cubin), 0, 0, 1024

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        def launch(x: int, y: int, z: int, stream: int, function: tuple[str, bytes], *arguments: Any) -> None:
            launched = Compiled(metadata.name, (x, y, z), metadata.num_warps, *function, metadata.shared)
            # Triton keeps this function with what it compiled, for whoever is installed then.
            triton.runtime.driver.active.launches.append(launched)

        return launch


def _address(tensor: Tensor) -> int:
    """Memory of any allocation is aligned; a view into it may not be, and Triton then compiles other code."""
    return int(tensor.storage_offset()) * tensor.element_size()


@contextmanager
def installed(architecture: int) -> Iterator[AbsentDevice]:
    """For the time of the block, this is the process's only GPU."""
    device = AbsentDevice(architecture)
    triton.runtime.driver.set_active(device)
    knobs.runtime.kernel_load_start_hook.add(device.loading)
    stand_ins = _cuda(device)
    before = {name: getattr(torch.cuda, name) for name in stand_ins}
    of_tensor = Tensor.data_ptr
    try:
        _set(torch.cuda, stand_ins)
        _set(Tensor, {"data_ptr": _address})
        yield device
    finally:
        _set(Tensor, {"data_ptr": of_tensor})
        _set(torch.cuda, before)
        knobs.runtime.kernel_load_start_hook.remove(device.loading)
        triton.runtime.driver.set_active(_Nothing())


class _Nothing:
    """Afterwards no driver answers, rather than that of an architecture that nobody asked for."""


def _set(module: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(module, name, value)


class _Stream:
    def wait_stream(self, other: object) -> None:
        pass


class _Graph:
    def replay(self) -> None:
        """What it holds was written down when it was captured."""


def _cuda(device: AbsentDevice) -> dict[str, Any]:
    """What launching code asks of torch.cuda."""
    properties = SimpleNamespace(
        name=f"absent sm_{device.architecture}",
        major=device.architecture // 10,
        minor=device.architecture % 10,
        multi_processor_count=device.get_device_properties(0)["multiprocessor_count"],
        shared_memory_per_block_optin=device.get_device_properties(0)["max_shared_mem"],
    )
    return {
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: (properties.major, properties.minor),
        "Stream": _Stream,
        "current_stream": lambda *_: _Stream(),
        "stream": lambda *_: nullcontext(),
        "synchronize": lambda *_: None,
        "CUDAGraph": _Graph,
        "graph": lambda *_, **__: nullcontext(),
    }
