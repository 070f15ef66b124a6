"""A box of several devices, of which a job gets its own. GPUs are simulated where the probe reads them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfci import config, measure, nightly
from perfci.bench import devices, gpu, probe, suite
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


@pytest.mark.parametrize("settings", ["", "[hardware.h200]\nmatch = 'H200'\nslots = 4\nnight_minutes = 60\n"])
def test_a_suite_of_two_devices_is_measured_on_two_of_them_as_a_hardware_of_its_own(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str
) -> None:
    box = tuple(Gpu(index=index, uuid=f"GPU-{index}", model="NVIDIA H200") for index in range(4))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu, "gpus", lambda: gpu.visible(box, os.environ.get("CUDA_VISIBLE_DEVICES")))
    monkeypatch.setattr(gpu, "processes", lambda chosen: ())
    text = place.config.read_text().replace("run =", "devices = 2\nrun =", 1)
    place.config.write_text(f"{text}\n{settings}")
    (job,) = nightly.plan(place.path)["jobs"]
    assert (job["hardware"], job["devices"]) == ("h200-x2", 2)
    read = config.load(place.config)
    with devices.claimed(job["devices"], tmp_path / "locks"):
        hardware, _ = suite._device(measure.job_of(read, job), read)
    assert (hardware.name, hardware.count) == ("h200-x2", 2)
