"""What a measured process sees, and what stops perfci itself: devices, repositories, disks, signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfci import artifact
from perfci.bench import suite
from perfci.config import HardwareRule, Settings
from perfci.errors import DeviceError, SourceError, SuiteError
from tests.bench.jobs import Subject, a_subject

PATIENCE_S = 30.0


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return a_subject(tmp_path)


# ------------------------------------------------------------------------------------------ what a process sees


def test_a_process_sees_no_secrets_and_caches_of_its_own(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("PERFCI_DATABASE_URL", "AIRFLOW__CORE__FERNET_KEY", "GITHUB_TOKEN", "PIP_FIND_LINKS", "PYTHONPATH"):
        monkeypatch.setenv(key, "hunter2")
    monkeypatch.setenv("PERFCI_NODE", "box-7")
    sha = subject.repository.commit({"a": "1"})
    runs = subject.run(sha, run="env; false", runs=2)
    seen = [dict(line.split("=", 1) for line in run.log_tail.splitlines() if "=" in line) for run in runs]
    assert "hunter2" not in runs[0].log_tail
    cache = subject.settings.cache / "compiled" / "subject" / sha
    assert seen[0]["TRITON_CACHE_DIR"] == str(cache / "triton")
    assert seen[0]["TORCHINDUCTOR_CACHE_DIR"] == str(cache / "inductor")
    assert seen[0]["PATH"].startswith(str(Path(sys.executable).parent))
    assert [s["PERFCI_INDEX"] for s in seen] == ["0", "1"]
    assert seen[0]["PERFCI_SEED"] != seen[1]["PERFCI_SEED"]
    assert runs[0].node.name == "box-7"
    again = subject.run(sha, run="env; false")[0].log_tail
    assert f"PERFCI_SEED={seen[0]['PERFCI_SEED']}" in again, "the same process once more has the same inputs"
    harness = Path(seen[0]["PYTHONPATH"].split(":")[0])
    assert [p.name for p in harness.iterdir()] == ["perfci"]


def test_launch_wraps_what_is_run(subject: Subject) -> None:
    sha = subject.repository.commit({"a": "1"})
    here = subject.run(sha, run="false")[0].hardware.name
    subject.hardware[here] = HardwareRule(here, launch="/usr/bin/env MARK=1 {cmd}")
    assert subject.run(sha, run='echo "mark $MARK"; false')[0].log_tail == "mark 1"


# ------------------------------------------------------------------------------------------ what stops perfci itself


def test_a_device_that_is_not_here_is_named(subject: Subject) -> None:
    sha = subject.repository.commit({"a": "1"})
    subject.hardware["h200-x8"] = HardwareRule("h200-x8", match="H200")
    with pytest.raises(DeviceError, match=r"hardware 'h200-x8' is asked for, and this node is .*; run it on"):
        subject.run(sha, hardware="h200-x8")
    subject.hardware["h200-x8"] = HardwareRule("h200-x8", match="H200", launch="no-such-srun --gpus=8 {cmd}")
    with pytest.raises(DeviceError, match=r"no program 'no-such-srun' on this node; install it"):
        subject.run(sha, hardware="h200-x8")


def test_a_commit_cannot_say_what_hardware_or_node_it_ran_on(subject: Subject) -> None:
    """What a hardware is holds for all suites, whose times would be refused under its name."""
    sha = subject.repository.commit({"bench.py": "def test_it(benchmark):\n    benchmark(len, '')\n"})
    forge = "import json, os; p = os.environ['PERFCI_REPORT']; body = json.load(open(p)); "
    forge += "body['hardware'] |= {'name': 'mine', 'model': 'mine'}; body['node']['name'] = 'mine'; "
    forge += "json.dump(body, open(p, 'w'))"
    honest, forged = (
        subject.run(sha, run=f"pytest bench.py{more}", session=f"s{more}"[:2])[0]
        for more in ("", f'; python -c "{forge}"')
    )
    assert forged.measurements
    assert (forged.hardware, forged.node) == (honest.hardware, honest.node)


def test_a_gpu_that_somebody_uses_is_left_alone(subject: Subject, tmp_path: Path) -> None:
    """With a stand-in for NVIDIA's library: a machine whose only GPU computes for process 1."""
    (tmp_path / "stand-in").mkdir()
    (tmp_path / "stand-in" / "pynvml.py").write_text(
        "from types import SimpleNamespace as N\n"
        "class NVMLError(Exception): pass\n"
        "def nvmlInit(): pass\n"
        "def nvmlDeviceGetCount(): return 1\n"
        "def nvmlDeviceGetHandleByIndex(index): return 'handle'\n"
        "def nvmlDeviceGetName(handle): return 'NVIDIA H200'\n"
        "def nvmlDeviceGetComputeRunningProcesses(handle): return [N(pid=1, usedGpuMemory=2**30)]\n"
        "def nvmlSystemGetProcessName(pid): return '/usr/bin/trainer'\n"
    )
    sha = subject.repository.commit({"a": "1"})
    program = (
        "import sys; from pathlib import Path\n"
        "from perfci.bench import suite; from perfci.config import Settings, Suite\n"
        "root, repository, sha = sys.argv[1:]\n"
        "job = suite.Job(suite=Suite(name='s', repo=repository, run='true'), repository=repository, sha=sha,\n"
        "                session='s', runs=1, hardware='h200')\n"
        "suite.run(job, Settings(root=Path(root)), out=Path(root) / 'out', echo=print)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(subject.repository.folder), sha]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'stand-in'}:{Path(suite.__file__).parents[2]}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "DeviceError: h200 is in use by trainer (1); end that process or wait for it" in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_unknown_commit_and_a_missing_repository_are_named(subject: Subject) -> None:
    subject.repository.commit({"a": "1"})
    with pytest.raises(SourceError, match=r"has no revision 'f{40}'"):
        subject.run("f" * 40)
    shutil.rmtree(subject.repository.folder)
    with pytest.raises(SourceError, match="does not exist"):
        subject.run("e" * 40)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for nothing more; who may not mount one gets a place where no file can be made at all."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        (folder / "file").touch()
        yield folder / "file"
        return
    try:
        (folder / "filler").write_bytes(b"x" * 60 * 1024)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_one_line_and_nothing_half_written(subject: Subject, full_disk: Path) -> None:
    sha = subject.repository.commit({"a": "1" * 100_000})
    job = subject.job(sha, run="head -c 20000 /dev/urandom | base64; false")
    with pytest.raises(SuiteError) as caught:
        suite.run(job, subject.settings, out=full_disk / "out", echo=subject.told.append)
    assert "\n" not in str(caught.value)
    assert str(full_disk) in str(caught.value)
    assert not list(full_disk.glob("out/*"))
    assert subject.left() == []
    with pytest.raises((SuiteError, SourceError)) as caught_too:
        suite.run(job, Settings(root=full_disk), out=subject.out, echo=subject.told.append)
    assert "\n" not in str(caught_too.value)
    assert not subject.out.exists()


def test_a_killed_runner_loses_one_process_and_leaves_nothing(subject: Subject) -> None:
    sha = subject.repository.commit({"a": "1"})
    mark = subject.root / "pid"
    program = (
        "import sys; from pathlib import Path\n"
        "from perfci.bench import suite; from perfci.config import Settings, Suite\n"
        "root, repository, sha, command = sys.argv[1:]\n"
        "job = suite.Job(suite=Suite(name='s', repo=repository, run=command), repository=repository, sha=sha,\n"
        "                session='s', runs=2)\n"
        "suite.run(job, Settings(root=Path(root)), out=Path(root) / 'out', echo=print)\n"
    )
    hangs = f"test $PERFCI_INDEX = 0 && exit 1; setsid sleep 600 & echo $! > {mark}.new; mv {mark}.new {mark}; wait"
    command = [sys.executable, "-c", program, str(subject.root), str(subject.repository.folder), sha, hangs]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as runner:
        until = time.monotonic() + PATIENCE_S
        while not mark.is_file() and time.monotonic() < until:
            time.sleep(0.05)
        sleeper = int(mark.read_text())
        runner.send_signal(signal.SIGKILL)
    until = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{sleeper}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{sleeper}").exists()
    assert [artifact.read(path).run.index for path in subject.out.iterdir()] == [0]
    assert len(subject.left()) == 1
    subject.run(sha, run="false", first_index=1)
    assert subject.left() == []


def test_a_node_needs_none_of_the_control_planes_libraries() -> None:
    program = """
import sys
ABSENT = {"sqlalchemy", "pydantic", "alembic", "jsonschema", "psycopg", "psutil", "typer", "torch", "pytest"}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ImportError(f"{name} is not on a node")
sys.meta_path.insert(0, Block())
import perfci.bench.suite, perfci.bench.source, perfci.bench.build, perfci.readers.pytest_benchmark
print("imported")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "imported\n", done.stderr
