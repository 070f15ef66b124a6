"""AIRFLOW_HOME: what is written there, for whose eyes, and what is not handed on."""

from __future__ import annotations

import configparser
import dataclasses
import json
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from perfci import config, queues
from perfci.config import HardwareRule, Service, Settings
from perfci.embedded import home as homes
from perfci.embedded import metadata, options, ports
from perfci.embedded.home import Home
from perfci.embedded.schedule import check as check_schedule
from perfci.errors import ServiceError, SettingsError
from perfci.runner import keys

SUITE = '[suite.x]\nrepo = "."\nrun = "pytest"\n'
SERVER = "postgresql+psycopg://airflow:secret@db/airflow"
EDGE = Service(executor="EdgeExecutor")


def settings_in(folder: Path) -> Settings:
    folder.mkdir(exist_ok=True)
    (folder / "perfci.toml").write_text(SUITE)
    return config.load(folder / "perfci.toml")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path / "100% of a place")


@pytest.fixture
def home(settings: Settings) -> Home:
    return homes.of(settings)


def write(settings: Settings, *, scheduled: bool = False) -> configparser.ConfigParser:
    home = homes.of(settings)
    options.write(settings, home, port=1234, scheduled=scheduled)
    parser = configparser.ConfigParser()
    parser.read(home.folder / "airflow.cfg")
    return parser


def with_service(settings: Settings, service: Service, **hardware: HardwareRule) -> Settings:
    return dataclasses.replace(settings, service=service, hardware=hardware)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_listens_on_loopback_and_tells_nobody(settings: Settings) -> None:
    written = write(settings)
    assert written["api"]["host"] == "127.0.0.1"
    assert written["api"]["port"] == "1234"
    assert written["core"]["execution_api_server_url"] == "http://127.0.0.1:1234/execution/"
    assert written["usage_data_collection"]["enabled"] == "False"
    assert written["core"]["load_examples"] == "False"


def test_paths_with_spaces_and_per_cent_signs_survive(settings: Settings, home: Home) -> None:
    assert write(settings)["database"]["sql_alchemy_conn"] == f"sqlite:///{home.folder}/airflow.db"


def test_secrets_are_random_private_and_made_once(settings: Settings, home: Home, tmp_path: Path) -> None:
    first = write(settings)
    assert mode(home.folder) == 0o700
    for name in ("airflow.cfg", "secrets.json", "password.json"):
        assert mode(home.folder / name) == 0o600, name
    again = write(settings)
    other = write(settings_in(tmp_path / "other"))
    for section, name in (("core", "fernet_key"), ("api", "secret_key"), ("api_auth", "jwt_secret")):
        assert first[section][name] == again[section][name]
        assert first[section][name] != other[section][name]
        assert len(first[section][name]) >= 43
    assert json.loads(home.password_file.read_text()) == {"admin": home.password()}
    assert len(home.password()) >= 20


def test_a_secrets_file_that_was_cut_short_is_made_anew(settings: Settings, home: Home) -> None:
    write(settings)
    (home.folder / "secrets.json").write_text('{"jwt_secret": "abc')
    assert len(write(settings)["api_auth"]["jwt_secret"]) == 128


def test_the_schedule_belongs_to_the_service_alone(settings: Settings) -> None:
    assert write(settings, scheduled=False)["scheduler"]["use_job_schedule"] == "False"
    assert write(settings, scheduled=True)["scheduler"]["use_job_schedule"] == "True"


@pytest.mark.parametrize(
    ("executor", "listed"),
    [
        ("", "LocalExecutor"),
        ("LocalExecutor", "LocalExecutor"),
        ("my.Executor", "LocalExecutor,my.Executor"),
        ("EdgeExecutor", "LocalExecutor,edge:airflow.providers.edge3.executors.EdgeExecutor"),
    ],
)
def test_an_executor_of_the_settings_is_listed_beside_the_local_one(
    settings: Settings, executor: str, listed: str
) -> None:
    assert write(with_service(settings, Service(executor=executor)))["core"]["executor"] == listed


def test_on_one_machine_there_is_no_api_for_nodes(settings: Settings, home: Home) -> None:
    write(with_service(settings, EDGE))
    assert (home.plugins / "perfci_nodes.py").is_file()
    assert "edge" not in write(settings), "and none is left of an earlier start"
    assert not list(home.plugins.iterdir())


def test_nodes_are_known_by_their_own_keys_and_through_the_url_that_they_can_reach(settings: Settings) -> None:
    edge = write(with_service(settings, EDGE))["edge"]
    assert edge["trusted_jwks_url"] == str(settings.nodes / "jwks.json")
    assert (edge["jwt_issuer"], edge["jwt_audience"], edge["jwt_algorithm"]) == (keys.ISSUER, keys.AUDIENCE, "EdDSA")
    assert edge["api_url"] == "http://127.0.0.1:1234/edge_worker/v1/rpcapi"
    behind = dataclasses.replace(EDGE, airflow_url="https://airflow.example.org/")
    written = write(with_service(settings, behind))
    assert written["edge"]["api_url"] == "https://airflow.example.org/edge_worker/v1/rpcapi"
    assert written["core"]["execution_api_server_url"] == "http://127.0.0.1:1234/execution/"


@pytest.mark.parametrize(
    ("bind", "here"),
    [
        ("192.0.2.7", "http://192.0.2.7:1234"),
        ("0.0.0.0", "http://127.0.0.1:1234"),
        ("::", "http://[::1]:1234"),
    ],
)
def test_it_listens_where_it_is_told_to_and_its_own_steps_find_it(settings: Settings, bind: str, here: str) -> None:
    written = write(with_service(settings, Service(bind=bind)))
    assert written["api"]["host"] == bind
    assert written["core"]["execution_api_server_url"] == f"{here}/execution/"


def test_a_step_whose_node_is_gone_is_tried_again_soon_and_one_that_waits_is_not(settings: Settings) -> None:
    scheduler = write(settings)["scheduler"]
    assert 60 <= int(scheduler["task_instance_heartbeat_timeout"]) <= 120
    assert int(scheduler["task_queued_timeout"]) * int(scheduler["num_stuck_in_queued_retries"]) >= 6 * 3600


def test_a_queue_has_as_many_slots_as_its_hardware_and_airflow_as_many_as_all_of_them(settings: Settings) -> None:
    h200, h200b = HardwareRule("h200", queue="h200", slots=8), HardwareRule("h200-low", queue="h200", slots=2)
    team = with_service(settings, EDGE, h200=h200, h200b=h200b, other=HardwareRule("other", slots=4))
    assert queues.slots(team) == {"device": 1, "h200": 10}
    assert int(write(team)["core"]["parallelism"]) == int(write(settings)["core"]["parallelism"]) + 10


@pytest.mark.parametrize("given", [SERVER, SERVER.replace("+psycopg", ""), SERVER.replace("psycopg", "asyncpg")])
def test_a_database_server_is_spoken_to_by_one_driver_in_both_manners(settings: Settings, given: str) -> None:
    written = write(with_service(settings, Service(airflow_database=given)))["database"]
    assert written["sql_alchemy_conn"] == written["sql_alchemy_conn_async"] == SERVER
    assert mode(homes.of(settings).folder / "airflow.cfg") == 0o600


def test_the_environment_s_database_goes_before_that_of_the_file(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFCI_AIRFLOW_DATABASE_URL", SERVER)
    assert homes.of(with_service(settings, Service(airflow_database="postgresql://other/x"))).server == SERVER


@pytest.mark.parametrize("given", ["mysql://user:secret@db/airflow", "sqlite:////tmp/x.db", "secret"])
def test_a_database_that_airflow_cannot_take_is_refused_without_its_password(settings: Settings, given: str) -> None:
    with pytest.raises(SettingsError, match=r"service\.airflow_database") as caught:
        homes.of(with_service(settings, Service(airflow_database=given)))
    assert "secret" not in str(caught.value)


def test_a_database_server_that_does_not_answer_is_told_without_its_password(settings: Settings) -> None:
    url = f"postgresql+psycopg://airflow:secret@127.0.0.1:{ports.free()}/airflow"
    team = with_service(settings, Service(airflow_database=url))
    write(team)
    home = homes.of(team)
    (home.folder / "migrated").write_text(f"{metadata.version()} 123\n")
    with pytest.raises(ServiceError, match=r"does not answer.*is PostgreSQL running") as caught:
        metadata.needs_migration(home)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


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


def test_stale_process_files_are_removed(settings: Settings, home: Home) -> None:
    write(settings)
    (home.folder / "airflow-scheduler.pid").write_text("1")
    write(settings)
    assert not list(home.folder.glob("*.pid"))


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.state.mkdir()
    (settings.state / "airflow").write_text("a file where a folder should be")
    with pytest.raises(ServiceError, match="airflow"):
        write(settings)


def test_the_database_is_migrated_again_after_an_update_and_after_a_kill(settings: Settings, home: Home) -> None:
    write(settings)
    assert metadata.needs_migration(home)
    home.database.touch()
    assert metadata.needs_migration(home), "a database without the note of a finished migration"
    (home.folder / "migrated").write_text("1.0.0\n")
    assert metadata.needs_migration(home), "a database of another version"


def test_an_interrupted_run_is_seen_in_the_database(settings: Settings, home: Home) -> None:
    write(settings)
    with sqlite3.connect(home.database) as connection:
        connection.execute("CREATE TABLE dag_run (state TEXT)")
        connection.execute("INSERT INTO dag_run VALUES ('success'), ('failed')")
    assert not metadata.has_unfinished_runs(home)
    with sqlite3.connect(home.database) as connection:
        connection.execute("INSERT INTO dag_run VALUES ('running')")
    connection.close()
    assert metadata.has_unfinished_runs(home)


def test_a_database_that_cannot_be_asked_counts_as_interrupted(settings: Settings, home: Home) -> None:
    write(settings)
    home.database.write_text("no database")
    assert metadata.has_unfinished_runs(home)


def test_a_log_that_has_grown_too_long_is_put_aside(settings: Settings, home: Home) -> None:
    write(settings)
    with home.log("scheduler").open("wb") as stream:
        stream.truncate(10_000_001)
    assert not home.log("scheduler").exists()
    assert (home.logs / "scheduler.log.old").exists()
