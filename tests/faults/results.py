"""Result files as a node of a team's night makes them: size and shape are those that an H200 wrote, values invented."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from perfci import artifact
from perfci.model import (
    LATENCY,
    Clock,
    Commit,
    Control,
    Environment,
    Hardware,
    Measurement,
    Node,
    Origin,
    Run,
    RunStatus,
    Status,
    Telemetry,
    Timing,
    Workload,
)

SAMPLES = 45  # the median of the recorded H200 results is 48
IMPLEMENTATIONS = ("torch-eager", "torch-graph", "modular", "modular-pdl", "megakernel-graph")
# Ten nodes a class of device: what a team has of each.
NODES_A_HARDWARE = 10
BEGAN = datetime(2026, 11, 1, 2, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """One box: it measures one suite on one class of device."""

    number: int
    measurements: int
    runs: int

    @property
    def name(self) -> str:
        return f"node-{self.number:05d}"

    @property
    def suite(self) -> str:
        return f"suite-{self.number % NODES_A_HARDWARE}"

    @property
    def hardware(self) -> str:
        return f"h200-class-{self.number // NODES_A_HARDWARE}"

    def job(self, night: int) -> dict[str, Any]:
        """As `nightly.plan` makes it, without a grant."""
        return {
            "suite": self.suite,
            "repository": "",
            "sha": _commit(self.suite, night).sha,
            "position": night + 1,
            "subject": "",
            "hardware": self.hardware,
            "queue": self.hardware,
            "executor": "EdgeExecutor",
            "session": f"nightly-{night:05d}",
            "runs": self.runs,
            "first_index": self.number * self.runs,
            "expect": [],
            "origin": "measured",
        }

    def results(self, night: int) -> Iterator[bytes]:
        """The bytes of this node's result files of a night, one a process."""
        chance = random.Random(f"{self.number} {night}")
        measurements = tuple(self._measurement(number, chance) for number in range(self.measurements))
        for index in range(self.number * self.runs, (self.number + 1) * self.runs):
            body = artifact.plain(self._run(measurements, night, index))
            for found in body["measurements"]:  # type: ignore[index]
                scale = chance.gauss(1, 0.001)
                found["timing"]["samples"] = [sample * scale for sample in found["timing"]["samples"]]
            whole = {"format": artifact.FORMAT, "version": artifact.VERSION, "run": body}
            yield json.dumps(whole, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1).encode() + b"\n"

    def _measurement(self, number: int, chance: random.Random) -> Measurement:
        workload, implementation = divmod(number, len(IMPLEMENTATIONS))
        latency = 1e-3 * (1 + workload % 97) * (1 + implementation / 10)
        return Measurement(
            workload=Workload(
                f"decode/llama-1b/b1-ctx{128 * (workload + 1)}-bf16",
                tokens=1,
                bytes_moved=2_488_923_152,
                flops=2_538_602_496,
                working_set_bytes=2_488_919_056,
            ),
            implementation=IMPLEMENTATIONS[implementation],
            status=Status.OK,
            metric=LATENCY,
            verified=True,
            timing=Timing(
                tuple(latency * chance.gauss(1, 0.002) for _ in range(SAMPLES)),
                Clock.CUDA_EVENT,
                iterations=2,
                resolution=2.5e-7,
            ),
            error=0.0303,
            tolerance=0.06,
            extras={"cache": "exceeded", "seed": 915293038, "steady": True},
        )

    def _run(self, measurements: tuple[Measurement, ...], night: int, index: int) -> Run:
        began = BEGAN + timedelta(days=night, minutes=index % 60)
        return Run(
            suite=self.suite,
            commit=_commit(self.suite, night),
            hardware=Hardware(self.hardware, "NVIDIA H200", memory_bytes=141 * 2**30, power_cap_w=700.0),
            node=Node(self.name, f"GPU-{hashlib.sha256(self.name.encode()).hexdigest()[:32]}"),
            environment=Environment("590.44", "13.0", "2.11.0", "3.6.0", "3.12.3", "6.8.0", "", "ecc=on"),
            session=f"nightly-{night:05d}",
            index=index,
            origin=Origin.MEASURED,
            status=RunStatus.OK,
            harness="perfci/simulated",
            started_at=began,
            finished_at=began + timedelta(minutes=9),
            measurements=measurements,
            controls=(
                Control("copy_bandwidth", "B/s", 4.27e12, working_set_bytes=4_300_000_000),
                Control("read_bandwidth_memory", "B/s", 4.51e12, working_set_bytes=4_300_000_000),
                Control("matmul_rate", "flop/s", 7.9e14),
            ),
            telemetry=Telemetry((1.98e9, 1.98e9), (3.2e9, 3.2e9), (41.0, 50.0), (157.0, 351.0), load_average=0.9),
        )


def fleet(nodes: int, *, measurements: int, runs: int) -> tuple[SimulatedNode, ...]:
    return tuple(SimulatedNode(number, measurements, runs) for number in range(nodes))


def write(node: SimulatedNode, night: int, folder: Path) -> tuple[Path, ...]:
    """The node's files of a night in `folder`, named as a node names them."""
    job = node.job(night)
    written = []
    for index, data in enumerate(node.results(night), start=job["first_index"]):
        digest = hashlib.sha256(data).hexdigest()
        path = folder / f"{artifact.name_start(job['session'], index)}{digest[:16]}{artifact.SUFFIX}"
        path.write_bytes(data)
        written.append(path)
    return tuple(written)


def _commit(suite: str, night: int) -> Commit:
    def sha(number: int) -> str:
        return hashlib.sha1(f"{suite} {number}".encode(), usedforsecurity=False).hexdigest()

    parents = (sha(night - 1),) if night else ()
    return Commit(sha(night), parents, night + 1, BEGAN + timedelta(days=night, hours=-9), f"Change number {night + 1}")
