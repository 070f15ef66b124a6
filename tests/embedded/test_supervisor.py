"""Real processes, real signals: whatever is killed, nothing below it lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from perfci import supervisor
from perfci.errors import ServiceError
from perfci.supervisor import Ended, Program, Tree

# Starts a child, and a grandchild that daemonises; each writes its process id and sleeps.
FAMILY = """
import os, subprocess, sys, time
here = sys.argv[1]
def note(name):
    open(f"{here}/{name}.new", "w").write(str(os.getpid()))
    os.rename(f"{here}/{name}.new", f"{here}/{name}")
child = f"import os, time; open({here!r} + '/child', 'w').write(str(os.getpid())); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note("daemon")
        time.sleep(600)
    os._exit(0)
note("parent")
time.sleep(600)
"""
NAMES = ("parent", "child", "daemon")
CHILD = """
import os, time
open("HERE/left.new", "w").write(str(os.getpid()))
os.rename("HERE/left.new", "HERE/left")
time.sleep(600)
"""


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    mark = f"test:{tmp_path}"
    yield mark
    supervisor.sweep(mark)


def program(folder: Path, text: str = FAMILY, name: str = "family") -> Program:
    command = (sys.executable, "-c", text, str(folder))
    return Program(name, command, dict(os.environ), folder, folder / f"{name}.log")


def until(what: Callable[[], object], *, limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def pids(folder: Path) -> list[int]:
    until(lambda: all((folder / name).is_file() and (folder / name).read_text() for name in NAMES))
    return [int((folder / name).read_text()) for name in NAMES]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start_command(folder: Path, mark: str) -> subprocess.Popen[bytes]:
    """A process of its own that holds a tree, as `perfci nightly` does."""
    text = f"""
        import os, sys, time
        from pathlib import Path
        from perfci.supervisor import Ended, Program, Tree
        folder = Path({str(folder)!r})
        with Tree({mark!r}, log=folder / "supervisor.log", grace_s=1.0) as tree:
            command = (sys.executable, "-c", {FAMILY!r}, str(folder))
            tree.start(Program("family", command, dict(os.environ), folder, folder / "log"))
            while True:
                tree.check()
                time.sleep(0.05)
    """
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(text)], stderr=subprocess.DEVNULL)


def test_leaving_the_tree_ends_children_and_daemonised_grandchildren(tmp_path: Path, mark: str) -> None:
    with Tree(mark, log=tmp_path / "supervisor.log") as tree:
        tree.start(program(tmp_path))
        found = pids(tmp_path)
        assert all(alive(pid) for pid in found)
    assert not any(alive(pid) for pid in found)


def test_an_exception_inside_the_tree_stops_it_and_goes_on(tmp_path: Path, mark: str) -> None:
    found: list[int] = []
    with pytest.raises(KeyboardInterrupt), Tree(mark, log=tmp_path / "supervisor.log") as tree:
        tree.start(program(tmp_path))
        found = pids(tmp_path)
        raise KeyboardInterrupt
    assert not any(alive(pid) for pid in found)


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path, mark: str) -> None:
    stubborn = (
        "import signal, time, sys; signal.signal(15, signal.SIG_IGN); open(sys.argv[1] + '/up', 'w'); time.sleep(600)"
    )
    with Tree(mark, log=tmp_path / "supervisor.log", grace_s=0.3) as tree:
        pid = tree.start(program(tmp_path, stubborn))
        until((tmp_path / "up").exists)
    assert not alive(pid)


def test_a_program_gets_sigterm_first_and_may_finish_its_work(tmp_path: Path, mark: str) -> None:
    tidy = """
        import pathlib, signal, sys, time
        def end(*_):
            pathlib.Path(sys.argv[1], "tidied").write_text("yes")
            sys.exit(0)
        signal.signal(signal.SIGTERM, end)
        pathlib.Path(sys.argv[1], "up").write_text("yes")
        time.sleep(600)
    """
    with Tree(mark, log=tmp_path / "supervisor.log", grace_s=20) as tree:
        tree.start(program(tmp_path, textwrap.dedent(tidy)))
        until((tmp_path / "up").exists)
    assert (tmp_path / "tidied").read_text() == "yes"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_when_the_command_is_killed_everything_below_it_dies(tmp_path: Path, mark: str, number: signal.Signals) -> None:
    command = start_command(tmp_path, mark)
    found = pids(tmp_path)
    command.send_signal(number)
    command.wait()
    until(lambda: not any(alive(pid) for pid in found))
    until(lambda: not supervisor.marked(mark))


def test_ctrl_c_on_the_command_ends_everything(tmp_path: Path, mark: str) -> None:
    command = start_command(tmp_path, mark)
    found = pids(tmp_path)
    command.send_signal(signal.SIGINT)
    command.wait()
    assert not any(alive(pid) for pid in found)


def test_what_outlives_a_killed_command_and_supervisor_is_found_by_its_mark(tmp_path: Path, mark: str) -> None:
    command = start_command(tmp_path, mark)
    found = pids(tmp_path)
    (above,) = psutil.Process(command.pid).children()
    above.kill()
    command.kill()
    command.wait()
    until(lambda: not alive(found[0]))  # the program itself dies with its supervisor
    assert any(alive(pid) for pid in found[1:])
    assert supervisor.sweep(mark) >= 1
    assert not any(alive(pid) for pid in found)


def test_a_sweep_spares_other_trees(tmp_path: Path, mark: str) -> None:
    with Tree(mark, log=tmp_path / "supervisor.log") as tree:
        pid = tree.start(program(tmp_path))
        assert supervisor.sweep(mark + "-another") == 0
        assert alive(pid)


def test_a_killed_supervisor_is_told_and_leaves_nothing(tmp_path: Path, mark: str) -> None:
    with pytest.raises(ServiceError, match="supervisor"), Tree(mark, log=tmp_path / "supervisor.log") as tree:
        tree.start(program(tmp_path))
        found = pids(tmp_path)
        (above,) = [p for p in psutil.Process().children() if p.environ().get(supervisor.MARK) == mark]
        above.kill()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            tree.check()
            time.sleep(0.02)
    assert not any(alive(pid) for pid in found)


def test_a_program_that_dies_is_told_with_the_end_of_its_log(tmp_path: Path, mark: str) -> None:
    dying = program(tmp_path, "print('the port is taken'); raise SystemExit(3)", "api-server")
    expected = r"api-server ended with code 3: the port is taken; read .*api-server\.log"
    with pytest.raises(ServiceError, match=expected), Tree(mark, log=tmp_path / "supervisor.log") as tree:
        tree.start(dying)
        end = time.monotonic() + 20
        while time.monotonic() < end:
            tree.check()
            time.sleep(0.02)


def test_what_a_program_leaves_behind_when_it_ends_is_ended_too(tmp_path: Path, mark: str) -> None:
    leaving = f"import subprocess, sys, time; child = {CHILD!r}; subprocess.Popen([sys.executable, '-c', child]); "
    leaving += "time.sleep(1.0)"
    with Tree(mark, log=tmp_path / "supervisor.log") as tree:
        tree.start(program(tmp_path, textwrap.dedent(FAMILY), name="other"))
        others = pids(tmp_path)
        tree.start(program(tmp_path, leaving.replace("HERE", str(tmp_path)), name="leaving"))
        until((tmp_path / "left").is_file)
        until(lambda: tree.ended() == (Ended("leaving", 0),))
        assert not alive(int((tmp_path / "left").read_text()))
        assert all(alive(pid) for pid in others)


def test_an_end_is_told_once_and_the_program_can_be_started_again(tmp_path: Path, mark: str) -> None:
    with Tree(mark, log=tmp_path / "supervisor.log") as tree:
        pid = tree.start(program(tmp_path))
        assert tree.ended() == ()
        pids(tmp_path)
        os.kill(pid, signal.SIGKILL)
        ends: list[Ended] = []
        until(lambda: ends.extend(tree.ended()) or ends)
        assert ends == [Ended("family", -signal.SIGKILL)]
        assert tree.ended() == ()
        assert "family ended with signal 9" in tree.problem(ends[0]).message
        again = tree.start_again("family")
        assert again != pid
        assert alive(again)
        tree.check()


def test_a_program_that_is_not_there_is_told(tmp_path: Path, mark: str) -> None:
    absent = Program("absent", ("/no/such/program",), {}, tmp_path, tmp_path / "log")
    with (
        Tree(mark, log=tmp_path / "supervisor.log") as tree,
        pytest.raises(ServiceError, match="absent could not be started"),
    ):
        tree.start(absent)


def test_programs_can_be_interrupted_although_their_supervisor_is_not(tmp_path: Path, mark: str) -> None:
    text = """
        import pathlib, signal, sys, time
        pathlib.Path(sys.argv[1], "up").write_text(str(signal.getsignal(signal.SIGINT)))
        time.sleep(600)
    """
    with Tree(mark, log=tmp_path / "supervisor.log") as tree:
        tree.start(program(tmp_path, textwrap.dedent(text)))
        until(lambda: (tmp_path / "up").exists() and (tmp_path / "up").read_text())
    assert "default_int_handler" in (tmp_path / "up").read_text()


def test_an_open_file_that_the_tree_keeps_is_closed_only_when_all_have_gone(tmp_path: Path, mark: str) -> None:
    reading, writing = os.pipe()
    with Tree(mark, log=tmp_path / "supervisor.log", keep=(writing,)) as tree:
        tree.start(program(tmp_path))
        os.close(writing)
        found = pids(tmp_path)
        holders = [p for p in psutil.Process().children(recursive=True) if p.pid in found]
        assert holders
        os.set_blocking(reading, False)
        with pytest.raises(BlockingIOError):
            os.read(reading, 1)
    assert os.read(reading, 1) == b""
    os.close(reading)
