"""The demo through the ordinary path, on both databases."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from perfci import artifact, config, demo, share, synthetic
from perfci.config import Settings
from perfci.demo import LoadedDemo
from perfci.model import ChangeKind, Origin
from perfci.store import engine as database
from perfci.store import reads
from perfci.store.rows import RunRow
from tests.build import H200, a_measurement, a_run


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (tmp_path / "perfci.toml").write_text('[suite.kernels]\nrepo = "."\nrun = "pytest"\n')
    monkeypatch.chdir(tmp_path)
    return config.load(tmp_path / "perfci.toml")


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of recorded results, with nothing in it yet."""
    folder = tmp_path / "share" / "dashboard" / "demo"
    folder.mkdir(parents=True)
    real = share.folder
    monkeypatch.setattr(share, "folder", lambda name: folder.parent if name == "dashboard" else real(name))
    return folder


def load(settings: Settings, *, nights: int = 4) -> tuple[LoadedDemo, list[str]]:
    said: list[str] = []
    return demo.load(settings, echo=said.append, nights=nights), said


@contextmanager
def opened(settings: Settings) -> Iterator[Engine]:
    engine = database.connect(settings.database_url)
    yield engine
    engine.dispose()


def stored(settings: Settings, suite: str) -> tuple[RunRow, ...]:
    with opened(settings) as engine:
        return reads.runs(engine, suite=suite)


def test_the_demo_fills_an_absent_database_and_keeps_every_file(settings: Settings, recorded: Path) -> None:
    loaded, said = load(settings)
    assert (loaded.synthetic.new, loaded.synthetic.known) == (12, 0)
    rows = stored(settings, "synthetic-year")
    assert {row.origin for row in rows} == {Origin.SYNTHETIC}
    kept = {path.name.removesuffix(artifact.SUFFIX) for path in settings.artifacts.rglob("*.perfci.json")}
    assert kept == {row.artifact_sha256 for row in rows}
    assert any("synthetic year" in line for line in said)


def test_loading_it_again_changes_nothing(settings: Settings, recorded: Path) -> None:
    load(settings)
    engine = database.connect(settings.database_url)
    before = reads.counts(engine)
    loaded, _ = load(settings)
    assert (loaded.synthetic.new, loaded.synthetic.known, loaded.new_alerts) == (0, 12, 0)
    assert reads.counts(engine) == before


def test_nothing_is_left_over_beside_the_database(settings: Settings, recorded: Path) -> None:
    load(settings)
    left = {path.name for path in settings.state.iterdir() if path.name.startswith(("demo-", ".writing"))}
    assert left == set()
    assert list(settings.incoming.glob("*.perfci.json")) == []


def test_recorded_results_are_stored_as_recorded_plain_or_compressed(settings: Settings, recorded: Path) -> None:
    artifact.write(a_run(hardware=H200), recorded)
    data = artifact.encode(a_run(hardware=H200, index=1))
    (recorded / "second.perfci.json.gz").write_bytes(gzip.compress(data))
    (recorded / "README.md").write_text("not a result")
    loaded, _ = load(settings)
    assert (loaded.recorded.new, loaded.recorded.refused) == (2, ())
    rows = stored(settings, "kernels")
    assert {(row.origin, row.hardware) for row in rows} == {(Origin.RECORDED, "h200")}
    again, _ = load(settings)
    assert (again.recorded.new, again.recorded.known) == (0, 2)
    assert (recorded / "second.perfci.json.gz").exists()


def test_a_trace_stays_in_the_kept_file_and_out_of_the_database(settings: Settings, recorded: Path) -> None:
    trace = base64.b64encode(b"where the time went").decode()
    artifact.write(a_run([replace(a_measurement(), trace=trace)], hardware=H200), recorded)
    load(settings, nights=1)
    (row,) = stored(settings, "kernels")
    (kept,) = settings.artifacts.rglob(f"{row.artifact_sha256}*")
    assert artifact.read(kept).run.measurements[0].trace == trace
    for part in settings.state.glob("perfci.db*"):
        assert trace.encode() not in part.read_bytes()


def test_every_recorded_result_that_is_delivered_is_taken(settings: Settings) -> None:
    loaded, _ = load(settings, nights=1)
    assert loaded.recorded.refused == ()
    assert loaded.recorded.new == len(list(share.folder("dashboard").glob("demo/*.perfci.json*"))) > 0


def test_recorded_and_synthetic_results_never_share_a_series(settings: Settings, recorded: Path) -> None:
    artifact.write(a_run(hardware=H200), recorded)
    load(settings)
    engine = database.connect(settings.database_url)
    origins = {
        series.key: {point.origin for point in reads.history(engine, series.id)} for series in reads.all_series(engine)
    }
    assert {key: found for key, found in origins.items() if len(found) != 1} == {}
    assert {series.synthetic for series in reads.all_series(engine, suite="kernels")} == {False}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cut.perfci.json.gz", gzip.compress(b"x" * 1000)[:20]),
        ("plain.perfci.json.gz", b"this was never compressed"),
        ("foreign.perfci.json", b'{"benchmarks": []}'),
        ("bomb.perfci.json.gz", gzip.compress(b" " * (artifact.MAX_BYTES + 10))),
    ],
)
def test_a_broken_recorded_file_is_told_and_the_others_are_loaded(
    settings: Settings, recorded: Path, name: str, content: bytes
) -> None:
    artifact.write(a_run(hardware=H200), recorded)
    (recorded / name).write_bytes(content)
    loaded, said = load(settings, nights=1)
    assert loaded.recorded.new == 1
    assert len(loaded.recorded.refused) == 1
    assert any(name.removesuffix(".gz") in line for line in said)


def test_recorded_results_that_call_themselves_generated_are_refused(settings: Settings, recorded: Path) -> None:
    artifact.write(a_run(origin=Origin.SYNTHETIC, suite="other"), recorded)
    loaded, _ = load(settings, nights=1)
    assert len(loaded.recorded.refused) == 1
    assert stored(settings, "other") == ()


def test_the_demo_goes_into_postgresql_too(
    settings: Settings, recorded: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFCI_DATABASE_URL", database_url)
    loaded, _ = load(settings)
    assert loaded.synthetic.new == 12
    assert len(stored(settings, "synthetic-year")) == 12


def test_a_killed_load_is_completed_by_the_next(settings: Settings, recorded: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(line: str) -> None:
        if "synthetic year: up to" in line:
            raise Killed

    with pytest.raises(Killed):
        demo.load(settings, echo=kill, nights=60)
    assert 0 < len(stored(settings, "synthetic-year")) < 180
    loaded, _ = load(settings, nights=60)
    assert loaded.synthetic.new + loaded.synthetic.known == 180
    assert len(stored(settings, "synthetic-year")) == 180


@pytest.mark.slow
def test_a_year_raises_an_alert_for_each_planted_change_and_for_nothing_else(
    settings: Settings, recorded: Path
) -> None:
    loaded, _ = load(settings, nights=synthetic.NIGHTS)
    found = reads.alerts(database.connect(settings.database_url))
    assert loaded.new_alerts == len(found)
    assert {(a.series.implementation, a.kind, a.commit.position) for a in found} == {
        ("modular-pdl", ChangeKind.REGRESSION, synthetic.REGRESSION),
        ("modular-pdl", ChangeKind.IMPROVEMENT, synthetic.IMPROVEMENT),
    }
    regression = next(a for a in found if a.kind is ChangeKind.REGRESSION)
    # Nights wander by 0.08 % with a memory of ten: the level after a step is known to about 0.2 %.
    assert abs(regression.ratio - 1.03) < 0.004
    assert regression.low < regression.ratio < regression.high
