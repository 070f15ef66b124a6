from __future__ import annotations

from collections import defaultdict
from itertools import islice, pairwise
from statistics import median, stdev

import pytest

from perfci import artifact, synthetic
from perfci.model import Origin, Run, RunStatus, Status


@pytest.fixture(scope="module")
def year() -> tuple[Run, ...]:
    return tuple(synthetic.year(1))


def by_position(year: tuple[Run, ...], implementation: str) -> dict[int, list[float]]:
    found: dict[int, list[float]] = defaultdict(list)
    for run in year:
        for m in run.measurements:
            if m.implementation == implementation and m.timing is not None:
                found[run.commit.position or 0].append(median(m.timing.samples))
    return found


def level(year: tuple[Run, ...], implementation: str, positions: range) -> float:
    found = by_position(year, implementation)
    return median(v for p in positions for v in found.get(p, ()))


def test_a_seed_gives_the_same_files_every_time_and_another_seed_others() -> None:
    def files(seed: int) -> list[bytes]:
        return [artifact.encode(run) for run in islice(synthetic.year(seed), 9)]

    assert files(1) == files(1)
    assert not set(files(1)) & set(files(2))


def test_every_file_passes_the_checks_of_the_ordinary_reader(year: tuple[Run, ...]) -> None:
    for run in year[:: len(year) // 40]:
        assert artifact.decode(artifact.encode(run), name="x").run == run


def test_every_run_says_that_it_is_generated(year: tuple[Run, ...]) -> None:
    assert {run.origin for run in year} == {Origin.SYNTHETIC}
    assert {run.suite for run in year} == {"synthetic-year"}
    assert {run.hardware.name for run in year} == {"synthetic-h200"}


def test_processes_of_a_night_differ_as_on_a_real_device(year: tuple[Run, ...]) -> None:
    nights = by_position(year, "modular-graph").values()
    spreads = [stdev(night) / median(night) for night in nights if len(night) == 3]
    assert 0.0006 < median(spreads) < 0.0014  # 0.06 to 0.12 % were measured on an H200; 3 processes underestimate


def test_the_planted_changes_are_in_the_numbers(year: tuple[Run, ...]) -> None:
    at = synthetic.REGRESSION
    ratio = level(year, "modular-pdl", range(at, at + 30)) / level(year, "modular-pdl", range(at - 30, at))
    assert abs(ratio - 1.03) < 0.002
    at = synthetic.IMPROVEMENT
    ratio = level(year, "modular-pdl", range(at, at + 15)) / level(year, "modular-pdl", range(at - 15, at))
    assert abs(ratio - 0.96) < 0.002


def test_what_is_planted_is_named_by_its_commit(year: tuple[Run, ...]) -> None:
    subjects = {run.commit.position: run.commit.subject for run in year}
    assert {p: subjects[p] for p in synthetic.PLANTED} == synthetic.PLANTED
    assert [p for p, subject in subjects.items() if "planted" in subject and p not in synthetic.PLANTED] == []


def test_nights_are_missing_and_nights_fail(year: tuple[Run, ...]) -> None:
    assert {run.commit.position for run in year} == set(range(1, 366)) - set(synthetic.GAP)
    failed = {run.commit.position: run.status for run in year if run.status is not RunStatus.OK}
    assert failed == {
        synthetic.BUILD_FAILED: RunStatus.BUILD_FAILED,
        synthetic.TIMED_OUT: RunStatus.TIMEOUT,
    }
    wrong = {r.commit.position for r in year for m in r.measurements if m.status is Status.INCORRECT}
    assert wrong == set(synthetic.INCORRECT)


def test_the_driver_changes_once_and_moves_the_controls_too(year: tuple[Run, ...]) -> None:
    drivers = [run.environment.driver for run in year]
    assert sum(a != b for a, b in pairwise(drivers)) == 1

    def bandwidth(driver: str) -> float:
        runs = [run for run in year if run.environment.driver == driver]
        return median(c.value for run in runs for c in run.controls if c.name == "read_bandwidth_memory")

    assert bandwidth("590.44") / bandwidth("580.159") == pytest.approx(1.003, abs=0.0005)
