"""AIRFLOW_HOME: what is written there, for whose eyes, and what is not handed on."""

from __future__ import annotations

import configparser
import json
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perfci import config
from perfci.config import Service, Settings
from perfci.embedded import home as homes
from perfci.embedded.home import Home
from perfci.embedded.schedule import check as check_schedule
from perfci.errors import ServiceError

SUITE = '[suite.x]\nrepo = "."\nrun = "pytest"\n'


def settings_in(folder: Path) -> Settings:
    folder.mkdir(exist_ok=True)
    (folder / "perfci.toml").write_text(SUITE)
    return config.load(folder / "perfci.toml")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return homes.of(settings_in(tmp_path / "100% of a place"))


def prepare(home: Home, *, scheduled: bool = False, executor: str = "") -> configparser.ConfigParser:
    homes.prepare(home, port=1234, scheduled=scheduled, executor=executor)
    parser = configparser.ConfigParser()
    parser.read(home.folder / "airflow.cfg")
    return parser


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_listens_on_loopback_and_tells_nobody(home: Home) -> None:
    written = prepare(home)
    assert written["api"]["host"] == "127.0.0.1"
    assert written["api"]["port"] == "1234"
    assert written["core"]["execution_api_server_url"] == "http://127.0.0.1:1234/execution/"
    assert written["usage_data_collection"]["enabled"] == "False"
    assert written["core"]["load_examples"] == "False"


def test_paths_with_spaces_and_per_cent_signs_survive(home: Home) -> None:
    assert prepare(home)["database"]["sql_alchemy_conn"] == f"sqlite:///{home.folder}/airflow.db"


def test_secrets_are_random_private_and_made_once(home: Home, tmp_path: Path) -> None:
    first = prepare(home)
    assert mode(home.folder) == 0o700
    for name in ("airflow.cfg", "secrets.json", "password.json"):
        assert mode(home.folder / name) == 0o600, name
    again = prepare(home)
    other = prepare(homes.of(settings_in(tmp_path / "other")))
    for section, name in (("core", "fernet_key"), ("api", "secret_key"), ("api_auth", "jwt_secret")):
        assert first[section][name] == again[section][name]
        assert first[section][name] != other[section][name]
        assert len(first[section][name]) >= 43
    assert json.loads(home.password_file.read_text()) == {"admin": home.password()}
    assert len(home.password()) >= 20


def test_a_secrets_file_that_was_cut_short_is_made_anew(home: Home) -> None:
    prepare(home)
    (home.folder / "secrets.json").write_text('{"jwt_secret": "abc')
    assert len(prepare(home)["api_auth"]["jwt_secret"]) == 128


def test_the_schedule_belongs_to_the_service_alone(home: Home) -> None:
    assert prepare(home, scheduled=False)["scheduler"]["use_job_schedule"] == "False"
    assert prepare(home, scheduled=True)["scheduler"]["use_job_schedule"] == "True"


def test_an_executor_of_the_settings_is_listed_beside_the_local_one(home: Home) -> None:
    assert prepare(home)["core"]["executor"] == "LocalExecutor"
    assert prepare(home, executor="LocalExecutor")["core"]["executor"] == "LocalExecutor"
    assert prepare(home, executor="my.Executor")["core"]["executor"] == "LocalExecutor,my.Executor"


def test_the_callers_own_airflow_and_proxy_stay_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://production")
    monkeypatch.setenv("AIRFLOW_HOME", "/srv/airflow")
    monkeypatch.setenv("NO_PROXY", "intranet")
    home = homes.of(settings_in(tmp_path))
    assert [name for name in home.environment if name.startswith("AIRFLOW")] == ["AIRFLOW_HOME"]
    assert home.environment["AIRFLOW_HOME"] == str(tmp_path / ".perfci" / "airflow")
    assert home.environment["NO_PROXY"] == "intranet,127.0.0.1,localhost"
    assert home.environment["PERFCI_CONFIG"] == str(tmp_path / "perfci.toml")


def test_a_settings_file_of_another_name_is_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(SUITE)
    monkeypatch.setenv("PERFCI_CONFIG", str(tmp_path / "mine.toml"))
    home = homes.of(config.load(tmp_path / "mine.toml"))
    assert home.environment["PERFCI_CONFIG"] == str(tmp_path / "mine.toml")


@pytest.mark.parametrize("schedule", ["every day", "", "99 2 * * *", "0 2 * *"])
def test_a_schedule_that_is_none_is_named_before_anything_starts(schedule: str) -> None:
    with pytest.raises(ServiceError, match=r"service\.schedule = ") as caught:
        check_schedule(Service(schedule=schedule))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("timezone", ["Mars/Base", "", "../etc/passwd", "/etc/localtime", "America"])
def test_a_time_zone_that_is_none_is_named_before_anything_starts(timezone: str) -> None:
    with pytest.raises(ServiceError, match=r"service\.timezone = "):
        check_schedule(Service(timezone=timezone))


@pytest.mark.airflow
def test_a_schedule_that_airflow_takes_is_taken(tmp_path: Path) -> None:
    schedules = ["0 2 * * *", "*/20 8-18 * * MON-FRI", "0 0 L * *", "0 0 * * 5#3"]
    schedules += [f"@{often}" for often in ("hourly", "daily", "weekly", "monthly", "quarterly", "yearly")]
    for schedule in schedules:
        check_schedule(Service(schedule=schedule, timezone="Europe/Berlin"))
    program = (
        "import sys\nfrom airflow.timetables.trigger import CronTriggerTimetable\n"
        "for words in sys.argv[1:]: CronTriggerTimetable(words, timezone='Europe/Berlin').validate()"
    )
    environment = os.environ | {"AIRFLOW_HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program, *schedules], env=environment, check=True, timeout=120)


def test_stale_process_files_are_removed(home: Home) -> None:
    prepare(home)
    (home.folder / "airflow-scheduler.pid").write_text("1")
    prepare(home)
    assert not list(home.folder.glob("*.pid"))


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.state.mkdir()
    (settings.state / "airflow").write_text("a file where a folder should be")
    with pytest.raises(ServiceError, match="airflow"):
        prepare(homes.of(settings))


def test_the_database_is_migrated_again_after_an_update_and_after_a_kill(home: Home) -> None:
    prepare(home)
    assert homes.needs_migration(home)
    home.database.touch()
    assert homes.needs_migration(home), "a database without the note of a finished migration"
    (home.folder / "migrated").write_text("1.0.0\n")
    assert homes.needs_migration(home), "a database of another version"


def test_an_interrupted_run_is_seen_in_the_database(home: Home) -> None:
    prepare(home)
    with sqlite3.connect(home.database) as connection:
        connection.execute("CREATE TABLE dag_run (state TEXT)")
        connection.execute("INSERT INTO dag_run VALUES ('success'), ('failed')")
    assert not homes.has_unfinished_runs(home)
    with sqlite3.connect(home.database) as connection:
        connection.execute("INSERT INTO dag_run VALUES ('running')")
    connection.close()
    assert homes.has_unfinished_runs(home)


def test_a_database_that_cannot_be_asked_counts_as_interrupted(home: Home) -> None:
    prepare(home)
    home.database.write_text("no database")
    assert homes.has_unfinished_runs(home)


def test_a_log_that_has_grown_too_long_is_put_aside(home: Home) -> None:
    prepare(home)
    with home.log("scheduler").open("wb") as stream:
        stream.truncate(10_000_001)
    assert not home.log("scheduler").exists()
    assert (home.logs / "scheduler.log.old").exists()
