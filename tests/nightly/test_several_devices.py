"""A box of several devices, of which a job gets its own. GPUs are simulated where the probe reads them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfci import config, measure, nightly
from perfci.bench import devices, gpu, probe
from perfci.bench.gpu import Gpu
from tests.nightly.place import Place


def test_a_night_on_one_machine_is_planned_for_the_device_that_its_jobs_get(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for all of the box's together, which would be another hardware."""
    box = tuple(Gpu(index=index, uuid=f"GPU-{index}", model="NVIDIA H200") for index in range(4))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu, "gpus", lambda: gpu.visible(box, os.environ.get("CUDA_VISIBLE_DEVICES")))
    monkeypatch.setattr(gpu, "processes", lambda chosen: ())
    (job,) = nightly.plan(place.path)["jobs"]
    settings = config.load(place.config)
    asked = measure.job_of(settings, job)
    with devices.claimed(job["devices"], tmp_path / "locks"):
        assert probe.hardware(settings.hardware).name == asked.hardware == "h200"
