"""One command at a time in a state folder, told by name; real processes hold the locks."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfci.embedded.lock import Busy, hold
from perfci.errors import ServiceError

ROOT = Path(__file__).parents[2]
HOLDER = """
import sys, time
from pathlib import Path
from perfci.embedded.lock import hold
with hold(Path(sys.argv[1]), command="perfci nightly") as lock:
    print("held", flush=True)
    while not lock.orphaned():
        time.sleep(0.05)
    print("orphaned", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "nightly.lock"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command(path), stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def command(path: Path, *, linger_s: float = 0) -> list[str]:
    return [sys.executable, "-c", HOLDER, str(path), str(linger_s)]


def environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "MAKELEVEL"} | {"PYTHONPATH": str(ROOT)}


def test_who_comes_second_hears_who_is_at_work(path: Path, holder: subprocess.Popen[str]) -> None:
    expected = rf"perfci nightly \(process {holder.pid}, since .* UTC\) is at work in .*state; wait until"
    with pytest.raises(Busy, match=expected) as caught, hold(path, command="perfci up"):
        pass
    assert caught.value.holder.pid == holder.pid


def test_a_busy_error_travels_between_processes_as_a_service_error(path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(Busy) as caught, hold(path, command="perfci up"):
        pass
    copied = pickle.loads(pickle.dumps(caught.value))
    assert type(copied) is ServiceError
    assert str(copied) == str(caught.value)


def test_a_killed_holder_leaves_the_lock_free_at_once(path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with hold(path, command="perfci nightly") as lock:
        assert lock.holder.pid == os.getpid()


def test_who_comes_after_a_dead_holder_waits_for_what_it_has_left_behind(path: Path, tmp_path: Path) -> None:
    # The lock file stays open in a child of the holder, as it does in the supervisor of its processes.
    text = f"""
import os, subprocess, sys
from pathlib import Path
from perfci.embedded.lock import hold
with hold(Path({str(path)!r}), command="perfci nightly") as lock:
    code = "import time, pathlib; time.sleep(1); pathlib.Path({str(tmp_path / "cleared")!r}).touch()"
    subprocess.Popen([sys.executable, "-c", code], pass_fds=(lock.descriptor,))
    os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", text], env=environment(), check=False)
    assert ended.returncode == -signal.SIGKILL
    with hold(path, command="perfci nightly"):
        assert (tmp_path / "cleared").exists()


def test_a_lock_file_without_a_name_in_it_is_told_all_the_same(path: Path, holder: subprocess.Popen[str]) -> None:
    path.write_text("")
    with pytest.raises(ServiceError, match=r"another process holds .*nightly\.lock"), hold(path, command="perfci up"):
        pass


def test_a_command_whose_make_was_killed_knows_it_and_is_waited_for(path: Path, tmp_path: Path) -> None:
    assert shutil.which("make"), "make is needed"
    script = tmp_path / "holder.py"
    script.write_text(HOLDER)
    (tmp_path / "Makefile").write_text(f"nightly:\n\t@exec '{sys.executable}' '{script}' '{path}' 1\n")
    make = subprocess.Popen(
        ["make", "nightly"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    )
    assert make.stdout is not None
    assert make.stdout.readline() == "held\n"
    make.kill()
    make.wait()
    with hold(path, command="perfci nightly"):  # waits: it still has to put its work away
        assert make.stdout.read() == "orphaned\n"
    make.stdout.close()


def test_a_state_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a folder should be")
    with pytest.raises(ServiceError, match="state folder"), hold(tmp_path / "state" / "x.lock", command="perfci up"):
        pass
