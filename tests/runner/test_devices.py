"""Devices are claimed whole, by a lock that ends with its holder. GPUs are simulated where the probe reads them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perfci.bench import devices, gpu
from perfci.bench.gpu import Gpu, Process
from perfci.errors import DeviceError

GPUS = tuple(Gpu(index=index, uuid=f"GPU-{letter * 4}", model="NVIDIA H200") for index, letter in enumerate("abcd"))


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Process, ...]]:
    """Four GPUs; the dictionary says who computes on which."""
    at_work: dict[str, tuple[Process, ...]] = {}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu, "gpus", lambda: gpu.visible(GPUS, os.environ.get("CUDA_VISIBLE_DEVICES")))
    monkeypatch.setattr(
        gpu, "processes", lambda chosen: tuple(p for device in chosen for p in at_work.get(device.uuid, ()))
    )
    return at_work


def test_a_job_sees_its_own_device_alone(box: object, tmp_path: Path) -> None:
    with devices.claimed(1, tmp_path) as first:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == first[0] == "GPU-aaaa"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_two_jobs_get_different_devices(box: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with devices.claimed(2, tmp_path) as first:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")  # the other job is another process
        with devices.claimed(2, tmp_path) as second:
            assert not set(first) & set(second)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(first))


def test_a_device_on_which_something_computes_is_not_taken(box: dict[str, tuple[Process, ...]], tmp_path: Path) -> None:
    box["GPU-aaaa"] = (Process(1, "somebody's training"),)
    with devices.claimed(1, tmp_path) as chosen:
        assert chosen == ("GPU-bbbb",)


def test_a_job_waits_while_all_are_in_use_and_says_by_whom(box: dict[str, tuple[Process, ...]], tmp_path: Path) -> None:
    box.update({device.uuid: (Process(7, "training"),) for device in GPUS})
    said: list[str] = []

    def heard(line: str) -> None:
        said.append(line)
        box.clear()  # it ends while the job waits

    with devices.claimed(1, tmp_path, echo=heard) as chosen:
        assert chosen == ("GPU-aaaa",)
    assert len(said) == 1
    assert "training (7)" in said[0]


def test_patience_ends_with_the_name_of_who_is_in_the_way(box: dict[str, tuple[Process, ...]], tmp_path: Path) -> None:
    box.update({device.uuid: (Process(7, "training"),) for device in GPUS})
    with pytest.raises(DeviceError, match=r"in use by training \(7\)"), devices.claimed(1, tmp_path, patience_s=0):
        pass


def test_more_devices_than_there_are_is_said_at_once(box: object, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="5 devices are asked for, and this node has 4"), devices.claimed(5, tmp_path):
        pass


def test_two_jobs_that_need_three_of_four_do_not_wait_for_each_other(box: object, tmp_path: Path) -> None:
    done: list[tuple[str, ...]] = []

    def job() -> None:
        found = devices._taken
        with devices.ExitStack() as held:
            while not (chosen := found(held, [device.uuid for device in GPUS], 3, tmp_path)):
                pass
            done.append(chosen)

    threads = [threading.Thread(target=job) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 2


def test_without_a_gpu_one_job_has_the_box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(gpu, "gpus", lambda: ())
    with devices.claimed(1, tmp_path) as nothing:
        assert nothing == ()
        with pytest.raises(DeviceError, match="another job"), devices.claimed(1, tmp_path, patience_s=0):
            pass
    with devices.claimed(1, tmp_path, patience_s=0):
        pass


def test_a_killed_job_frees_its_device(tmp_path: Path) -> None:
    holding = (
        "import sys, time; from pathlib import Path; from perfci.bench import devices, gpu\n"
        "gpu.gpus = lambda: ()\n"
        f"with devices.claimed(1, Path({str(tmp_path)!r})):\n    print('held', flush=True); time.sleep(600)\n"
    )
    job = subprocess.Popen([sys.executable, "-c", holding], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "held\n"
    job.kill()
    job.wait()
    job.stdout.close()
    with devices.claimed(1, tmp_path, patience_s=0):
        pass
