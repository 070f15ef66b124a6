"""Old raw samples go; what is computed and shown does not move by a bit."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci import changes, config, keeping, synthetic
from perfci.config import Policy, Settings
from perfci.model import Direction
from perfci.store import keeping as store
from perfci.store import reads, writes
from perfci.store.keeping import Thinned
from tests.build import EPOCH, SAMPLES, a_commit, a_measurement, a_run, an_artifact
from tests.keeping.contents import tables_of

OLD, NEW = EPOCH, EPOCH + timedelta(days=40)
NOW = EPOCH + timedelta(days=41)


def settings_of(folder: Path, *, days: int | None) -> Settings:
    return Settings(root=folder, policy=Policy(raw_samples_days=days))


def two_nights(engine: sa.Engine) -> None:
    for position, started_at in ((1, OLD), (2, NEW)):
        for index in range(3):
            run = a_run(
                [a_measurement("a"), a_measurement("b")],
                commit=a_commit(position),
                session=f"night-{position}",
                index=index,
                started_at=started_at + timedelta(minutes=index),
            )
            writes.ingest(engine, an_artifact(run), path="p")


def quiet(line: str) -> None:
    pass


def test_raw_samples_older_than_the_policy_go_and_nothing_else_does(engine: sa.Engine, tmp_path: Path) -> None:
    two_nights(engine)
    before = tables_of(engine)
    thinned = keeping.thin(settings_of(tmp_path, days=30), engine, now=NOW, echo=quiet)
    assert thinned == Thinned(6, 6 * 8 * len(SAMPLES))
    after = tables_of(engine)
    old = {run["id"] for run in before["run"] if run["started_at"] < NEW}
    for row in before["measurement"]:
        if row["run_id"] in old:
            row["samples"] = None
    assert after == before


def test_thinning_again_finds_nothing(engine: sa.Engine, tmp_path: Path) -> None:
    two_nights(engine)
    settings = settings_of(tmp_path, days=30)
    keeping.thin(settings, engine, now=NOW, echo=quiet)
    assert keeping.thin(settings, engine, now=NOW, echo=quiet) == Thinned(0, 0)


def test_a_dry_run_tells_the_same_and_changes_nothing(engine: sa.Engine, tmp_path: Path) -> None:
    two_nights(engine)
    before = tables_of(engine)
    settings = settings_of(tmp_path, days=30)
    told = keeping.thin(settings, engine, now=NOW, echo=quiet, dry_run=True)
    assert tables_of(engine) == before
    assert keeping.thin(settings, engine, now=NOW, echo=quiet) == told


def test_without_a_policy_every_sample_stays(engine: sa.Engine, tmp_path: Path) -> None:
    two_nights(engine)
    before = tables_of(engine)
    assert keeping.thin(settings_of(tmp_path, days=None), engine, now=NOW, echo=quiet) is None
    assert tables_of(engine) == before


def test_batches_reach_every_old_run(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    two_nights(engine)
    monkeypatch.setattr(store, "RUNS_AT_ONCE", 2)
    assert [part.measurements for part in store.thin(engine, before=NOW)] == [4, 4, 4]


def test_what_detection_says_of_a_history_does_not_need_raw_samples(
    new_sqlite: Callable[[Path], str], tmp_path: Path
) -> None:
    """A synthetic series with planted changes, cut short, thinned whole."""
    engine = store.hurried(new_sqlite(tmp_path / "perfci.db"))
    commits = synthetic.commits(1)
    for run in synthetic.year(1, nights=130):
        if run.index == 0:
            kept = tuple(m for m in run.measurements if m.implementation == "modular-pdl")
            body = an_artifact(dataclasses.replace(run, measurements=kept))
            writes.ingest(engine, body, path="p")
    writes.sync_branch(engine, synthetic.SUITE, commits[:130])
    (series,) = reads.all_series(engine)
    before = reads.history(engine, series.id)
    found = changes.find(before, direction=Direction.LOWER, policy=Policy())
    assert any(change.commit.position == synthetic.IMPROVEMENT for change in found)
    assert sum(part.measurements for part in store.thin(engine, before=NOW)) > 100
    after = reads.history(engine, series.id)
    assert after == before
    assert changes.find(after, direction=Direction.LOWER, policy=Policy()) == found
    assert reads.samples(engine, series.id, before[0].run_id) == ()


def test_space_is_given_back(tmp_path: Path, engine: sa.Engine) -> None:
    long = a_measurement(samples=[0.01 + 1e-7 * n for n in range(20_000)])
    for position in range(1, 6):
        run = a_run([long], commit=a_commit(position), session=f"night-{position}", started_at=OLD)
        writes.ingest(engine, an_artifact(run), path="p")
    list(store.thin(engine, before=NOW))
    file = tmp_path / "perfci.db"
    before = file.stat().st_size if engine.dialect.name == "sqlite" else None
    store.vacuum(engine)
    if before is not None:
        assert before - file.stat().st_size > 5 * 8 * 20_000 * 0.9
    assert len(tables_of(engine)["measurement"]) == 5


def test_source_bundles_that_nobody_asks_for_are_removed(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, days=None)
    settings.bundles.mkdir(parents=True)
    for name, age in (("old", 60), ("new", 1)):
        path = settings.bundles / f"{name}.bundle"
        path.write_bytes(b"x")
        moment = (NOW - timedelta(days=age)).timestamp()
        os.utime(path, (moment, moment))
    assert keeping.trim(settings, now=NOW) == (settings.bundles / "old.bundle",)
    assert [path.name for path in settings.bundles.iterdir()] == ["new.bundle"]


def test_the_setting_comes_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "perfci.toml").write_text("[policy]\nraw_samples_days = 90\n")
    assert config.load(tmp_path / "perfci.toml").policy.raw_samples_days == 90
