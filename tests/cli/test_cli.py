"""The command as a process of its own: exit codes, one line for what goes wrong, and what it imports."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfci import nightly
from tests.nightly.place import BENCHMARK, SETTINGS, Place, wait_for

HEAVY = ("sqlalchemy", "alembic", "pydantic", "jsonschema", "torch", "triton", "airflow", "streamlit", "httpx")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.repository.commit({"bench/test_toy.py": BENCHMARK}, "Sum numbers")
    return made


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A file system of one megabyte. Only root can mount one; others get a folder, which `close` locks."""
    folder = tmp_path / "disk"
    folder.mkdir()
    root = os.geteuid() == 0
    if root:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield Disk(folder, root)
    if root:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    else:
        folder.chmod(0o700)


@dataclass(frozen=True)
class Disk:
    folder: Path
    root: bool

    def fill(self) -> None:
        if not self.root:
            self.folder.chmod(0o500)
            return
        free = os.statvfs(self.folder)
        (self.folder / "filler").write_bytes(b"x" * (free.f_bavail * free.f_frsize))

    def close(self) -> None:
        """Make it read-only."""
        if self.root:
            subprocess.run(["mount", "-o", "remount,ro", str(self.folder)], check=True)
            return
        for path in (*self.folder.glob("*"), self.folder):
            path.chmod(0o500)


def refused(done: subprocess.CompletedProcess[str], *names: str, lines: int = 1) -> str:
    """One line on stderr that names the value, exit code 2, and no traceback."""
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("perfci: ")]
    assert len(told) == lines, done.stderr
    for name in names:
        assert name in told[0]
    assert "; " in told[0], "the next step is missing"
    return told[0]


def test_the_steps_by_hand_make_a_night(place: Place) -> None:
    plan = place.perfci("plan", "--session", "by-hand")
    assert plan.returncode == 0
    (place.folder / "plan.json").write_text(plan.stdout, "utf-8")
    built = json.loads(place.perfci("build", "plan.json").stdout)
    assert [step["ok"] for step in built] == [True]
    paths = json.loads(place.perfci("measure", "plan.json").stdout)
    assert len(paths) == 1
    assert json.loads(place.perfci("ingest").stdout)["stored"] == 1
    assert json.loads(place.perfci("detect", "--session", "by-hand").stdout)["series"] == 2
    told = place.perfci("report", "--session", "by-hand")
    assert told.returncode == 0
    assert "ok, unverified" in told.stdout
    assert place.perfci("report").stdout == told.stdout  # the newest
    (first, second) = json.loads(place.perfci("results", "--json").stdout)
    assert first["n_runs"] == second["n_runs"] == 1
    body = json.loads(place.perfci("report", "--session", "by-hand", "--json").stdout)
    assert body["exit_code"] == 0


def test_a_plan_may_come_through_a_pipe(place: Place) -> None:
    plan = place.perfci("plan").stdout
    done = subprocess.run(
        [sys.executable, "-m", "perfci.cli", "--config", place.path, "build"],
        input=plan,
        capture_output=True,
        text=True,
        check=True,
        cwd=place.folder,
        env=os.environ | {"PYTHONPATH": str(Path(nightly.__file__).parents[1])},
    )
    assert json.loads(done.stdout)[0]["suite"] == "toy"


def test_run_measures_a_bundle_without_a_database_and_ingest_takes_the_files_in(place: Place) -> None:
    place.repository.commit({"bench/note.txt": "1"}, "Second")
    place.repository.git("bundle", "create", "--quiet", "../toy.bundle", "main")
    done = place.perfci("run", "--repo", "toy.bundle", "--last", "2", "--runs", "1", "--out", "out")
    assert done.returncode == 0, done.stderr
    files = sorted((place.folder / "out").glob("*.perfci.json"))
    assert len(files) == 2
    assert sorted(Path(line).name for line in done.stdout.splitlines()) == [file.name for file in files]
    assert "process 1 of 1" in done.stderr
    assert not (place.state / "perfci.db").exists()
    stored = place.perfci("ingest", "--recorded", *(str(file) for file in files))
    assert json.loads(stored.stdout)["stored"] == 2
    rows = json.loads(place.perfci("results", "--json").stdout)
    assert {row["origin"] for row in rows} == {"recorded"}
    assert "recorded" in place.perfci("results").stdout


def test_run_says_by_its_exit_code_that_nothing_was_measured(place: Place) -> None:
    place.repository.commit({"bench/test_toy.py": "def test_nothing():\n    pass\n"})
    done = place.perfci("run")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_run_imports_no_database_library_and_help_imports_nothing_heavy(place: Place) -> None:
    seen = place.folder / "seen"
    code = (
        "import sys, perfci.cli as c\n"
        "try:\n    c.main()\n"
        f"finally:\n    print(*[m for m in {HEAVY!r} if m in sys.modules], file=open({str(seen)!r}, 'w'))\n"
    )
    for arguments in (("run",), ("--help",), ("plan", "--help")):
        done = place.python(code, *arguments)
        assert done.returncode == 0, done.stderr
        assert seen.read_text("utf-8").split() == [], arguments


@pytest.mark.parametrize("command", ["nightly", "plan", "run"])
def test_an_unknown_revision_is_one_line(place: Place, command: str) -> None:
    refused(place.perfci(command, "--rev", "no-such-rev"), "no-such-rev")


@pytest.mark.parametrize("command", ["nightly", "plan", "run"])
def test_a_dirty_repository_is_one_line(place: Place, command: str) -> None:
    (place.repository.folder / "bench" / "test_toy.py").write_text("changed", "utf-8")
    refused(place.perfci(command), "test_toy.py", "commit")


@pytest.mark.parametrize("command", ["nightly", "plan", "run"])
def test_a_missing_repository_is_one_line(place: Place, command: str) -> None:
    shutil.rmtree(place.repository.folder)
    refused(place.perfci(command), str(place.repository.folder))


def test_a_gpu_that_is_asked_for_and_absent_is_one_line(place: Place) -> None:
    refused(place.perfci("run", "--hardware", "h200"), "h200")
    if shutil.which("nvidia-smi") is None:
        refused(place.perfci("run", "--gpu"), "no GPU")


def test_a_truncated_and_a_foreign_file_are_one_line_each_and_the_rest_is_stored(place: Place) -> None:
    assert place.perfci("run", "--out", "out").returncode == 0
    (good,) = (place.folder / "out").glob("*.json")
    (place.folder / "cut.perfci.json").write_bytes(good.read_bytes()[:500])
    (place.folder / "foreign.json").write_text('{"benchmarks": []}', "utf-8")
    done = place.perfci("ingest", "cut.perfci.json", "foreign.json", str(good), "absent.json")
    refused(done, "cut.perfci.json", lines=3)
    assert json.loads(done.stdout)["stored"] == 1


def test_a_read_only_database_is_one_line(place: Place, disk: Disk) -> None:
    url = f"sqlite:///{disk.folder / 'perfci.db'}"
    assert place.perfci("db", "upgrade", PERFCI_DATABASE_URL=url).returncode == 0
    disk.close()
    refused(place.perfci("triage", "1", "--state", "fixed", PERFCI_DATABASE_URL=url), "perfci.db")


def test_a_locked_database_is_one_line_and_the_results_stay(place: Place) -> None:
    assert place.perfci("run").returncode == 0
    place.perfci("db", "upgrade")
    impatient = "from perfci.store import engine; engine.connect.__kwdefaults__['busy_timeout_s'] = 0.3; "
    with closing(sqlite3.connect(place.state / "perfci.db", isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        refused(place.python(impatient + "from perfci import cli; cli.main()", "ingest"), "perfci.db", "locked")
        connection.execute("ROLLBACK")
    assert json.loads(place.perfci("ingest").stdout)["stored"] == 1


def test_a_database_that_is_none_is_one_line(place: Place) -> None:
    place.state.mkdir()
    (place.state / "perfci.db").write_text(
        "this is text, and long enough to be read as a database header" * 20, "utf-8"
    )
    refused(place.perfci("results"), "perfci.db")
    refused(place.perfci("results", PERFCI_DATABASE_URL="mysql://host/db"), "mysql")
    refused(place.perfci("db", "check", PERFCI_DATABASE_URL="sqlite:////nowhere/x.db"), "/nowhere")


def test_a_full_disk_is_one_line_and_nothing_is_half_written(place: Place, disk: Disk) -> None:
    out = disk.folder / "out"
    disk.fill()
    refused(place.perfci("run", "--out", str(out)), "out")
    assert not out.exists() or list(out.iterdir()) == []


def test_a_state_folder_without_room_is_one_line(place: Place, disk: Disk) -> None:
    place.config.write_text(SETTINGS + f'[service]\nstate = "{disk.folder}"\n', "utf-8")
    disk.fill()
    for command in ("plan", "run", "results"):
        assert "No space left on device" in refused(place.perfci(command)) or not disk.root


def test_settings_that_are_wrong_are_one_line(place: Place) -> None:
    refused(place.perfci("--config", "absent.toml", "results"), "absent.toml")
    place.config.write_text(SETTINGS + "brnach = 'x'\n", "utf-8")
    refused(place.perfci("plan"), "brnach", "branch")
    place.config.write_text("[suite.toy\n", "utf-8")
    refused(place.perfci("plan"), "perfci.toml")
    place.config.write_text("", "utf-8")
    refused(place.perfci("plan"), "no suite")
    place.config.unlink()
    refused(place.perfci("plan"), "perfci.toml")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("nightly", "--lasst", "2"), "--lasst"),
        (("nigtly",), "nigtly"),
        (("plan", "--last", "0"), "--last 0"),
        (("plan", "--last", "many"), "many"),
        (("plan", "--suite", "tyo"), "tyo"),
        (("run", "--suite", "tyo"), "tyo"),
        (("run", "--runs", "0"), "runs = 0"),
        (("run", "--repo", "/no/such/bundle"), "/no/such/bundle"),
        (("measure", "no-plan.json"), "no-plan.json"),
        (("measure", "perfci.toml"), "perfci.toml"),
        (("detect",), "--session"),
        (("triage", "7", "--state", "fixed"), "alert 7"),
        (("triage", "7", "--state", "fine"), "fine"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_it(place: Place, arguments: tuple[str, ...], name: str) -> None:
    refused(place.perfci(*arguments), name)


def test_a_job_that_is_none_names_what_it_lacks(place: Place) -> None:
    (place.folder / "job.json").write_text('{"suite": "toy", "hardware": ""}', "utf-8")
    refused(place.perfci("measure", "job.json"), "job")
    (place.folder / "job.json").write_text("[1]", "utf-8")
    refused(place.perfci("measure", "job.json"), "job.json")


def test_alerts_and_results_of_an_empty_database_say_so(place: Place) -> None:
    assert place.perfci("alerts").stdout == "No alerts.\n"
    assert json.loads(place.perfci("alerts", "--json").stdout) == []
    assert "perfci nightly" in place.perfci("results").stdout
    assert json.loads(place.perfci("results", "--json").stdout) == []


def test_results_of_a_suite_or_hardware_that_is_unknown_name_what_there_is(place: Place) -> None:
    refused(place.perfci("results", "--suite", "toi"), "'toi'", "'toy'")
    assert place.perfci("results", "--suite", "toy").stdout.startswith("Nothing is measured yet")
    assert place.perfci("run", "--runs", "1").returncode == 0
    place.perfci("ingest")
    (row, _) = json.loads(place.perfci("results", "--suite", "toy", "--json").stdout)
    refused(place.perfci("results", "--hardware", "h2000"), "'h2000'", row["hardware"])
    assert "toy on" in place.perfci("results", "--hardware", row["hardware"]).stdout


def test_a_reader_that_has_seen_enough_causes_no_complaint(place: Place) -> None:
    code = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-m', 'perfci.cli', 'results'],\n"
        "                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)\n"
        "p.stdout.close()\n"
        "print(p.stderr.read().decode(), p.wait())\n"
    )
    assert place.python(code).stdout.split() == [str(128 + signal.SIGPIPE)]


def test_interrupting_is_quiet_and_leaves_no_process_and_no_worktree(place: Place) -> None:
    slow = "import time\n\ndef test_slow(benchmark):\n    time.sleep(60)\n"
    place.repository.commit({"bench/test_toy.py": slow})
    child = place.start("run")
    wait_for(lambda: any((place.state / "worktrees").glob("toy*/process-*/output.log")))
    child.send_signal(signal.SIGINT)
    out, problem = child.communicate(timeout=60)
    assert child.returncode == 130, (out, problem)
    assert "Traceback" not in problem
    assert list((place.state / "worktrees").glob("toy*")) == []
    assert not list((place.state / "incoming").glob("*.json"))


def test_help_is_there_for_every_command_and_fits_the_terminal(place: Place) -> None:
    listing = place.perfci("--help").stdout
    commands = [line.split()[0] for line in listing.partition("Commands:")[2].splitlines() if line.startswith("  ")]
    assert {"nightly", "up", "demo", "db", "run", "plan", "build", "measure", "ingest", "detect", "results"} <= set(
        commands
    )
    for command in commands:
        told = place.perfci(command, "--help")
        assert told.returncode == 0
        assert max(map(len, told.stdout.splitlines())) <= 100


def test_no_command_at_all_shows_the_help(place: Place) -> None:
    done = place.perfci()
    assert "Commands:" in done.stdout
    assert done.returncode == 2
    assert place.perfci("db").returncode == 2


def test_version_is_a_version(place: Place) -> None:
    assert place.perfci("version").stdout.count(".") == 2
