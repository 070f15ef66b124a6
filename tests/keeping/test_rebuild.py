"""The result files give the same measurements again; what people said comes from a backup or from the old database."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from perfci import artifact, config, keeping, nightly, synthetic
from perfci.config import Settings
from perfci.errors import StoreError
from perfci.ingest import store_files
from perfci.keeping import Rebuilt
from perfci.model import AlertState, Origin, RunStatus, Status
from perfci.store import decisions, reads, schema, tables, writes
from perfci.store import keeping as store
from perfci.store.decisions import Decisions
from perfci.store.engine import connect, writing
from tests.build import EPOCH, H200, a_commit, a_measurement, a_run, a_sha
from tests.databases import _database
from tests.keeping.backups import quiet, restored, taken
from tests.keeping.contents import tables_of
from tests.store.processes import at_once

NIGHTS = 130
SUITE = "kernels"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(root=tmp_path)
    made.incoming.mkdir(parents=True)
    return made


@pytest.fixture
def into(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[str]:
    """A database without tables, of the same kind as `database_url`."""
    if database_url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path / 'rebuilt.db'}"
        return
    with _database(request.getfixturevalue("postgresql_server"), "template0") as url:
        yield url.render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of `a_history`, result files included."""
    settings = Settings(root=tmp_path_factory.mktemp("history"))
    settings.incoming.mkdir(parents=True)
    url = f"sqlite:///{settings.state / 'perfci.db'}"
    schema.upgrade(url)
    engine = store.hurried(url)
    a_history(engine, settings)
    taken(engine, settings.root / "history.tar", artifacts=settings.artifacts)
    return settings.root / "history.tar"


@pytest.fixture
def known(database_url: str, settings: Settings, history: Path) -> Iterator[sa.Engine]:
    """A database that has it, on both kinds, and the folder of result files."""
    restored(database_url, history, artifacts=settings.artifacts)
    engine = store.hurried(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def known_here(new_sqlite: Callable[[Path], str], settings: Settings, history: Path) -> sa.Engine:
    """The same on SQLite alone."""
    url = new_sqlite(settings.state / "perfci.db")
    restored(url, history, artifacts=settings.artifacts)
    return store.hurried(url)


@pytest.fixture
def into_here(settings: Settings) -> str:
    return f"sqlite:///{settings.state / 'rebuilt.db'}"


def ingested(engine: sa.Engine, settings: Settings, *, origin: Origin | None = None) -> None:
    told = store_files(engine, settings, origin=origin)
    assert told["refused"] == []


def a_history(engine: sa.Engine, settings: Settings) -> None:
    """Nights of one series with a regression and two that others take back, results of every kind, and what people
    said of them."""
    for position in range(1, 31):
        level = 0.0103 if position > 15 else 0.0101 if 5 < position < 8 else 0.0100
        for index in range(2):
            samples = [level * (1 + 0.0002 * ((position * 7 + index * 3 + n) % 5)) for n in range(5)]
            more = a_measurement("other", status=list(Status)[1 + position % (len(Status) - 1)])
            run = a_run(
                [a_measurement("torch-eager", samples), more],
                commit=a_commit(position, subject=f"Größe {position}"),
                session=f"night-{position}",
                index=index,
                started_at=EPOCH + timedelta(days=position, microseconds=position),
            )
            artifact.write(run, settings.incoming)
    broken = a_run([], commit=a_commit(31), status=RunStatus.BUILD_FAILED, reason="exit 1", session="night-31")
    artifact.write(broken, settings.incoming)
    ingested(engine, settings)
    artifact.write(a_run(suite="delivered", hardware=H200, session="elsewhere"), settings.incoming)
    ingested(engine, settings, origin=Origin.RECORDED)
    # What no file says: the newest commits were rewritten, and one is known that was never measured.
    branch = [a_commit(position) for position in range(1, 30)]
    writes.sync_branch(engine, SUITE, [*branch, a_commit(30, sha=a_sha("rewritten")), a_commit(31, sha=a_sha("next"))])
    writes.record_plan(engine, "night-30", 3, at=EPOCH)
    writes.record_plan(engine, "night-32", 0, at=EPOCH)  # of which no file tells
    nightly.detect_in(engine, "night-30", policy=settings.policy)
    (alert,) = reads.alerts(engine)
    writes.triage(engine, alert.id, state=AlertState.ACCEPTED, assignee="someone", note="10 % for less memory")
    with writing(engine) as connection:
        told: dict[str, Any] = {"channel": "team", "state": "sent", "created_at": EPOCH, "updated_at": EPOCH}
        ids = {"alert_id": alert.id, "session_id": None}
        connection.execute(sa.insert(tables.notification), [told | ids | {"key": "the alert"}])
        connection.execute(
            sa.insert(tables.notification), [told | {"key": "a night", "alert_id": None, "session_id": 1}]
        )
        lacking = {"session_id": 1, "suite_id": 1, "hardware": "h200", "reason": "no_node", "text": "none was alive"}
        connection.execute(sa.insert(tables.absence), [lacking | {"created_at": EPOCH}])


def rebuilt(settings: Settings, url: str, said: Decisions | None) -> Rebuilt:
    def detect(engine: sa.Engine, session: str) -> int:
        return int(nightly.detect_in(engine, session, policy=settings.policy, synthetic=True)["new_alerts"])

    return keeping.rebuild(settings, url, said=said, detect=detect, echo=quiet)


def named(engine: sa.Engine) -> Mapping[str, list[dict[str, Any]]]:
    """Every table, with names in place of numbers: what two databases have in common that numbered apart."""
    found = tables_of(engine)
    names = {
        "suite": {row["id"]: row["name"] for row in found["suite"]},
        "hardware": {row["id"]: row["name"] for row in found["hardware"]},
        "node": {row["id"]: (row["name"], row["device_uuid"]) for row in found["node"]},
        "environment": {row["id"]: row["fingerprint"] for row in found["environment"]},
        "session": {row["id"]: row["name"] for row in found["session"]},
        "commit": {row["id"]: row["sha"] for row in found["commit"]},
        "run": {row["id"]: row["artifact_sha256"] for row in found["run"]},
        "alert": {row["id"]: row["id"] for row in found["alert"]},
    }
    names["series"] = {
        row["id"]: (*(row[name] for name in ("workload", "implementation", "metric")), names["suite"][row["suite_id"]])
        for row in found["series"]
    }
    for rows in found.values():
        for row in rows:
            for column in [name for name in row if name.endswith("_id") and row[name] is not None]:
                row[column] = names[column.removesuffix("_id")][row[column]]
            row.pop("id", None)
        rows.sort(key=lambda row: sorted(row.items(), key=lambda pair: pair[0]).__repr__())
    return found


# ------------------------------------------------------------------------------------------------ the same again


def test_the_database_comes_back_from_the_files_and_the_decisions_to_the_last_bit(
    known: sa.Engine, settings: Settings, into: str
) -> None:
    told = rebuilt(settings, into, decisions.read(known))
    assert told.whole and told.stored == 62 and told.new_alerts == 0
    other = connect(into)
    schema.check(other)
    ours, theirs = named(known), named(other)
    for rows in (*ours["alert"], *theirs["alert"]):
        rows.pop("updated_at")  # detection looked at it again
        rows["evidence"].pop("session")
    assert theirs == ours
    other.dispose()


def test_a_backup_has_the_decisions_too(
    known_here: sa.Engine, settings: Settings, into_here: str, tmp_path: Path
) -> None:
    taken(known_here, tmp_path / "all.tar.gz")
    said = keeping.decisions_of(tmp_path / "all.tar.gz", tmp_path, echo=quiet)
    assert said == decisions.read(known_here)
    assert [path.name for path in tmp_path.glob("decisions-*")] == []


def test_without_decisions_measurements_are_the_same_and_alerts_are_new(
    known: sa.Engine, settings: Settings, into: str
) -> None:
    told = rebuilt(settings, into, None)
    assert (told.alerts, told.new_alerts, told.whole) == (0, 1, True)
    other = connect(into)
    ours, theirs = named(known), named(other)
    for row in (*ours["run"], *theirs["run"]):
        row["origin"] = None  # only the database knew that they were delivered
    for table in ("run", "measurement", "control", "series", "environment", "hardware", "node"):
        assert theirs[table] == ours[table]
    (old,), (new,) = reads.alerts(known, open_only=False), reads.alerts(other, open_only=False)
    assert (new.series, new.commit.sha, new.ratio) == (old.series, old.commit.sha, old.ratio)
    assert (new.state, new.note) == (AlertState.NEW, "")
    other.dispose()


def test_raw_samples_that_were_thinned_come_back(known_here: sa.Engine, settings: Settings, into_here: str) -> None:
    before = named(known_here)["measurement"]
    list(store.thin(known_here, before=EPOCH + timedelta(days=100)))
    rebuilt(settings, into_here, decisions.read(known_here))
    other = connect(into_here)
    assert named(other)["measurement"] == before
    other.dispose()


def test_an_answered_alert_that_detection_no_longer_finds_is_not_forgotten(
    known_here: sa.Engine, settings: Settings, into_here: str
) -> None:
    """It was raised when less was known: the files alone would not raise it."""
    with writing(known_here) as connection:
        alert = tables.alert
        other_commit = sa.select(tables.commit.c.id).where(tables.commit.c.position == 3).limit(1).scalar_subquery()
        connection.execute(sa.update(alert).values(commit_id=other_commit))
    told = rebuilt(settings, into_here, decisions.read(known_here))
    other = connect(into_here)
    found = {alert.commit.position: alert for alert in reads.alerts(other, open_only=False)}
    assert found[3].note == "10 % for less memory" and found[3].evidence["found"] is False
    assert told.new_alerts == 1 and len(found) == 2
    other.dispose()


def test_a_generated_year_is_rebuilt_with_its_alerts(
    settings: Settings, new_sqlite: Callable[[Path], str], into_here: str
) -> None:
    engine = store.hurried(new_sqlite(settings.state / "perfci.db"))
    for run in synthetic.year(1, nights=NIGHTS):
        if run.index == 0:
            one = dataclasses.replace(
                run, measurements=[m for m in run.measurements if m.implementation == "modular-pdl"]
            )
            (settings.incoming / f"{run.session}{artifact.SUFFIX}").write_bytes(artifact.encode(one))
    ingested(engine, settings)
    writes.sync_branch(engine, synthetic.SUITE, synthetic.commits(1)[:NIGHTS])
    last = synthetic.FIRST_NIGHT + timedelta(days=NIGHTS - 1)
    nightly.detect_in(engine, f"synthetic-{last:%Y-%m-%d}", policy=settings.policy, synthetic=True)
    told = rebuilt(settings, into_here, None)
    ours, theirs = ({(a.series, a.commit.sha, a.ratio) for a in reads.alerts(e)} for e in (engine, connect(into_here)))
    assert ours == theirs and told.new_alerts == len(ours)
    assert any(a.commit.position == synthetic.IMPROVEMENT for a in reads.alerts(engine))


# ------------------------------------------------------------------------------------------------ killed, twice at once


def test_a_rebuild_that_was_killed_goes_on_where_it_was(known: sa.Engine, settings: Settings, into: str) -> None:
    said = decisions.read(known)
    for step in ("store", "lay", "detect"):
        assert die_in(settings, into, said, step) == step
        unfinished = connect(into)
        with pytest.raises(StoreError, match="is being rebuilt; wait for `perfci db rebuild`, or start it again"):
            schema.check(unfinished)
        unfinished.dispose()
    told = rebuilt(settings, into, said)
    assert (told.stored, told.known, told.whole) == (0, 62, True)
    other = connect(into)
    ours, theirs = named(known), named(other)
    for rows in (*ours["alert"], *theirs["alert"]):
        rows.pop("updated_at")
        rows["evidence"].pop("session")
    assert theirs == ours
    with pytest.raises(StoreError, match="has rows already"):
        rebuilt(settings, into, said)
    other.dispose()


class _Dead(BaseException):
    pass


def die_in(settings: Settings, url: str, said: Decisions, step: str) -> str:
    """Ends, as if killed, in the middle of a step; what was committed is what a kill leaves."""

    def dying(*_: object, **__: object) -> Any:
        raise _Dead

    def counting(engine: sa.Engine, path: Path, done: Any, **more: Any) -> None:
        if done.new >= 20:
            raise _Dead
        stored(engine, path, done, **more)

    stored = keeping._store_file
    with pytest.MonkeyPatch.context() as patch:
        if step == "store":
            patch.setattr(keeping, "_store_file", counting)
        elif step == "lay":
            patch.setattr(decisions, "_alerts", dying)  # in the transaction that lays them
        else:
            patch.setattr(nightly, "detect_in", dying)
        try:
            rebuilt(settings, url, said)
        except _Dead:
            return step
    return "finished"


def test_two_rebuilds_at_once_give_one_database(known: sa.Engine, settings: Settings, into: str) -> None:
    said = decisions.read(known)
    schema.upgrade(into)
    told = at_once(rebuilt, [(settings, into, said)] * 2)
    assert all(each.whole and each.stored + each.known == 62 for each in told)
    assert sum(each.stored for each in told) == 62
    other = connect(into)
    ours, theirs = named(known), named(other)
    for table in ("run", "measurement", "control", "commit", "absence", "notification"):
        assert theirs[table] == ours[table]
    assert [alert.state for alert in reads.alerts(other, open_only=False)] == [AlertState.ACCEPTED]
    other.dispose()


def test_what_somebody_says_while_it_is_rebuilt_stays(
    known_here: sa.Engine, settings: Settings, into_here: str
) -> None:
    said = decisions.read(known_here)
    assert die_in(settings, into_here, said, "detect") == "detect"
    other = connect(into_here)
    (alert,) = reads.alerts(other, open_only=False)
    writes.triage(other, alert.id, state=AlertState.FIXED, assignee="another", note="meanwhile")
    rebuilt(settings, into_here, said)
    (alert,) = reads.alerts(other, open_only=False)
    assert (alert.state, alert.assignee, alert.note) == (AlertState.FIXED, "another", "meanwhile")
    other.dispose()


# ------------------------------------------------------------------------------------------------ refused, or told


def test_a_database_with_rows_is_not_rebuilt(database_url: str, known: sa.Engine, settings: Settings) -> None:
    before = tables_of(known)
    with pytest.raises(StoreError, match=r"has rows already \(in absence\); name an empty database with --into"):
        rebuilt(settings, database_url, None)
    assert tables_of(known) == before


def test_damaged_and_missing_files_are_told_by_name_and_the_rest_is_stored(
    settings: Settings, known_here: sa.Engine, into_here: str
) -> None:
    files = keeping.result_files(settings.artifacts)
    cut, other, gone = files[0], files[1], files[2]
    cut.write_bytes(cut.read_bytes()[:-100])
    shutil.copyfile(files[3], other)
    gone.unlink()
    (settings.artifacts / "ab" / "notes.txt").parent.mkdir(exist_ok=True)
    (settings.artifacts / "ab" / "notes.txt").touch()
    told = rebuilt(settings, into_here, decisions.read(known_here))
    assert not told.whole and told.stored == 59
    assert [str(cut) in told.refused[0], str(other) in told.refused[1]] == [True, True]
    assert set(told.missing) == {path.name.removesuffix(artifact.SUFFIX) for path in (cut, other, gone)}


def test_an_alert_of_a_series_without_any_file_is_told(
    settings: Settings, known_here: sa.Engine, into_here: str
) -> None:
    shutil.rmtree(settings.artifacts)
    settings.artifacts.mkdir()
    told = rebuilt(settings, into_here, decisions.read(known_here))
    (left,) = told.left
    assert left.startswith("alert 1 (kernels / cpu-test-2c / decode/tiny / torch-eager / latency at ")
    assert len(told.missing) == 62


def test_a_backup_may_take_the_place_of_a_rebuild_that_was_given_up(settings: Settings, history: Path) -> None:
    url = f"sqlite:///{settings.state / 'perfci.db'}"
    assert store.begin_rebuild(url) is False
    with pytest.raises(StoreError, match="is being rebuilt"):
        schema.check(connect(url))
    restored(url, history)
    schema.check(connect(url))


def test_no_result_files_at_all_give_an_empty_database(settings: Settings) -> None:
    url = f"sqlite:///{settings.state / 'perfci.db'}"
    assert rebuilt(settings, url, None).stored == 0
    schema.check(connect(url))


def test_the_folder_of_result_files_is_the_one_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "perfci.toml").write_text('[service]\nstate = "elsewhere"\n')
    settings = config.load(tmp_path / "perfci.toml")
    settings.incoming.mkdir(parents=True)
    artifact.write(a_run(), settings.incoming)
    url = f"sqlite:///{settings.state / 'perfci.db'}"
    schema.upgrade(url)
    ingested(connect(url), settings)
    Path(settings.state / "perfci.db").unlink()
    assert rebuilt(settings, url, None).stored == 1
    (run,) = tables_of(connect(url))["run"]
    assert (settings.state / run["path"]).is_file()
