"""Real processes: what they may see, how they end, and that nothing of them is left."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfci.bench import process
from perfci.bench.process import Ended, scrubbed, wrapped
from perfci.supervisor import MARK

PATIENCE_S = 20.0
# A process that leaves its session and its parent, as a daemon does, and writes its number into a file.
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


class Runner:
    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.told = folder, folder / "output.log", list[tuple[float, str]]()

    def __call__(self, *command: str, timeout_s: float = 60.0, log: Path | None = None) -> Ended:
        return process.run(
            command,
            folder=self.folder,
            environment={"PATH": os.environ["PATH"]},
            timeout_s=timeout_s,
            log=log or self.log,
            progress=lambda elapsed, line: self.told.append((elapsed, line)),
        )

    def python(self, program: str, *arguments: str, timeout_s: float = 60.0) -> Ended:
        return self(sys.executable, "-c", program, *arguments, timeout_s=timeout_s)


def gone(pid: int) -> bool:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def written(path: Path) -> int:
    """The process number that appears in a file."""
    until = time.monotonic() + PATIENCE_S
    while not (path.is_file() and path.read_text()):
        assert time.monotonic() < until, f"{path} was never written"
        time.sleep(0.02)
    return int(path.read_text())


def test_exit_code_output_and_times_are_kept(run: Runner) -> None:
    ended = run("/bin/sh", "-c", "echo out; echo err >&2; exit 7")
    assert (ended.code, ended.timed_out, ended.tail) == (7, False, "out\nerr")
    assert run.log.read_text() == "out\nerr\n"
    assert ended.started_at < ended.finished_at
    assert ended.how().startswith("ended with exit code 7 after ")


def test_a_signal_is_told_by_its_name(run: Runner) -> None:
    assert run.python("import os; os.kill(os.getpid(), 11)").how().startswith("ended by SIGSEGV after")
    assert "SIGKILL (out of memory?)" in run("/bin/sh", "-c", "kill -9 $$").how()


def test_a_program_that_is_not_there_has_the_shells_exit_code(run: Runner) -> None:
    assert run("/nowhere/program").code == 127
    assert "/nowhere/program cannot be started" in run("/nowhere/program").tail
    ended = run(*wrapped("no-such-compiler -O2"))
    assert ended.code == 127
    assert "no-such-compiler" in ended.tail


def test_a_timeout_ends_the_daemons_too(run: Runner, tmp_path: Path) -> None:
    ended = run.python(DAEMON, str(tmp_path / "pid"), "600", timeout_s=2.0)
    assert ended.timed_out
    assert ended.how() == "killed after 2 s"
    assert gone(written(tmp_path / "pid"))


def test_what_a_finished_command_left_running_is_ended(run: Runner, tmp_path: Path) -> None:
    ended = run.python(DAEMON, str(tmp_path / "pid"), "0.5")
    assert (ended.code, ended.timed_out) == (0, False)
    assert gone(written(tmp_path / "pid"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_command_that_turns_on_its_guardian_is_ended_with_its_daemons(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(process, "_GRACE_S", 1.0)
    turn = f"\nimport signal\nos.kill(os.getppid(), {number})\ntime.sleep(600)"
    ended = run.python(DAEMON + turn, str(tmp_path / "pid"), "0.5", timeout_s=3.0)
    assert ended.code == 128 + signal.SIGKILL
    assert ended.timed_out is (number == signal.SIGSTOP)
    assert gone(written(tmp_path / "pid"))


def test_a_command_that_ignores_signals_is_ended(run: Runner) -> None:
    program = "import signal, time\nfor n in (1, 2, 15): signal.signal(n, signal.SIG_IGN)\nprint('deaf', flush=True)\n"
    ended = run.python(program + "while True: time.sleep(1)", timeout_s=1.0)
    assert ended.timed_out
    assert ended.tail == "deaf"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_survives_a_runner_that_is_ended(tmp_path: Path, number: int) -> None:
    program = (
        "import sys; from pathlib import Path; from perfci.bench import process\n"
        "folder = Path(sys.argv[1])\n"
        "process.run((sys.executable, '-c', sys.argv[2], str(folder / 'pid'), '600'), folder=folder,\n"
        "            environment={}, timeout_s=600, log=folder / 'log')\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path), DAEMON]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as runner:
        daemon = written(tmp_path / "pid")
        runner.send_signal(number)
        assert runner.wait(PATIENCE_S) != 0
    assert gone(daemon)


def test_output_beyond_the_limit_is_dropped_and_its_end_is_kept(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOG_LIMIT_BYTES", 100_000)
    ended = run.python("for n in range(200_000): print('line', n)\nprint('the end')")
    assert ended.code == 0
    assert run.log.stat().st_size == 100_000
    assert ended.tail.endswith("line 199999\nthe end")
    assert len(ended.tail) <= 12_000


def test_a_log_that_cannot_be_written_does_not_stop_the_command(run: Runner) -> None:
    for log in (Path("/dev/full"), run.folder / "no" / "folder" / "log"):
        ended = run("/bin/sh", "-c", "echo one; sleep 0.3; echo two", log=log)
        assert (ended.code, ended.tail) == (0, "one\ntwo")


def test_progress_tells_the_last_line_while_the_command_runs(run: Runner) -> None:
    run("/bin/sh", "-c", "printf '\\033[32mcompiling 10%%\\rcompiling 20%%\\033[0m'; sleep 1.6")
    elapsed, line = run.told[0]
    assert line == "compiling 20%"
    assert elapsed >= 1


def test_a_tail_is_readable_whatever_the_command_prints(run: Runner) -> None:
    ended = run.python(r"import os; os.write(1, b'a\xff\x00b\n\n\x1b[1mbold\x1b[0m\r\n\x1b]0;title\x07end\n')")
    assert ended.tail == "a\N{REPLACEMENT CHARACTER}b\nbold\nend"


def test_nothing_can_be_read_from_the_terminal(run: Runner) -> None:
    assert run.python("import sys; print(repr(sys.stdin.read()))").tail == "''"


def test_launch_wraps_the_command_as_one_argument() -> None:
    command = 'pytest -k "a b" && echo $HOME'
    assert wrapped(command) == ("/bin/sh", "-c", command)
    assert wrapped(command, "srun --gpus=1 {cmd}") == ("srun", "--gpus=1", "/bin/sh", "-c", command)
    assert wrapped(command, 'bash -lc "{cmd}"') == ("bash", "-lc", shlex.join(("/bin/sh", "-c", command)))
    quoted = wrapped("""echo "a b" 'c d'""", 'sh -c "exec {cmd}"')
    assert subprocess.run(quoted, capture_output=True, text=True, check=True).stdout == "a b c d\n"


def test_secrets_do_not_reach_a_command() -> None:
    kept = {
        "PATH": "/bin",
        "HOME": "/home/a",
        "LC_ALL": "C",
        "CUDA_VISIBLE_DEVICES": "1",
        "OMP_NUM_THREADS": "2",
        "LD_LIBRARY_PATH": "/opt/cuda/lib64",
        "SLURM_JOB_ID": "7",
        MARK: "of-a-service",  # or what a killed service leaves could not be found
    }
    fetching = {"PIP_FIND_LINKS": "/wheels", "HTTPS_PROXY": "http://proxy:3128", "no_proxy": "localhost"}
    secret = {
        "PERFCI_DATABASE_URL": "postgresql+psycopg://u:p@db/perfci",
        "AIRFLOW__CORE__FERNET_KEY": "k",
        "AIRFLOW__API_AUTH__JWT_SECRET": "k",
        "GITHUB_TOKEN": "t",
        "HF_TOKEN": "t",
        "AWS_SECRET_ACCESS_KEY": "k",
        "SSH_AUTH_SOCK": "/tmp/agent",
        "PIP_INDEX_URL": "https://user:password@index.example.org/simple",
        "http_proxy": "http://user:password@proxy:3128",
        "SLURM_JWT_TOKEN": "t",
        "TRITON_API_KEY": "k",
        "PYTHONPATH": "/somewhere",
        "PYTEST_ADDOPTS": "-x",
        "LD_PRELOAD": "x.so",
    }
    assert scrubbed(kept | fetching | secret) == kept
    assert scrubbed(kept | fetching | secret, network=True) == kept | fetching
