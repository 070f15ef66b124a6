from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dashboard.levels import Shown, levels, options, segments
from dashboard.marks import MarkKind, marks
from dashboard.scales import draw, value
from perfci.changes import stands
from perfci.model import Environment, Status
from perfci.results import result
from tests.build import a_commit
from tests.dashboard.rows import a_line, a_point, a_series, an_alert


def positions(*points: object) -> list[list[int | None]]:
    return [[level.commit.position for level in part] for part in segments(levels(points))]  # type: ignore[arg-type]


def test_a_level_is_the_median_over_processes_and_its_spread_is_theirs() -> None:
    (level,) = levels([a_point(1, m, index=i) for i, m in enumerate((1.00e-3, 1.02e-3, 1.01e-3))])
    assert (level.low, level.middle, level.high, level.processes) == (1.00e-3, 1.01e-3, 1.02e-3, 3)
    assert level.spread is not None
    assert abs(level.spread - 0.01 / 1.01) < 1e-12


def test_one_process_has_an_unknown_spread_not_none() -> None:
    (level,) = levels([a_point()])
    assert level.spread is None


def test_a_second_session_of_a_commit_adds_evidence_to_its_level() -> None:
    (level,) = levels([a_point(1, 1e-3), a_point(1, 2e-3, session="again"), a_point(1, 3e-3, session="again")])
    assert (level.middle, level.processes) == (2e-3, 3)


def test_a_failed_process_beside_timed_ones_is_told_once() -> None:
    bad = [a_point(1, None, index=i, status=Status.TIMEOUT, reason="1800 s") for i in (1, 2)]
    (level,) = levels([a_point(1), *bad])
    assert level.middle == 1e-3
    assert level.failures == ((Status.TIMEOUT, "1800 s"),)


def test_the_share_of_the_ceiling_is_the_command_lines() -> None:
    """Controls move between processes; each is judged by its own."""
    points = [a_point(1, m, index=i, floor=f) for i, (m, f) in enumerate(((8e-3, 4e-3), (4e-3, 3e-3), (5e-3, 3e-3)))]
    (level,) = levels(points)
    assert level.ceiling_fraction == result(a_series(), points).ceiling_fraction == 0.6


def test_processes_without_a_time_count_where_none_has_one() -> None:
    points = [a_point(1, None, index=i, status=Status.CHECKED) for i in range(3)]
    (level,) = levels(points)
    assert level.processes == result(a_series(), points).n_runs == 3
    assert level.spread is None


def test_a_failure_of_every_process_has_no_value() -> None:
    (level,) = levels([a_point(1, None, status=Status.INCORRECT)])
    assert level.middle is None
    assert value(level, Shown.TOKENS) is None
    assert level.ceiling_fraction is None


def test_the_branch_gives_the_order_not_the_dates() -> None:
    # Ancestry A-B-C-D, dates 1, 4, 2, 3: the store hands them over by position, and so they stay.
    dated = [a_point(p, commit=a_commit(p, committed_at=a_commit(d).committed_at)) for p, d in zip((1, 2, 3, 4), (1, 4, 2, 3), strict=True)]  # fmt: skip  # noqa: E501
    assert positions(*dated) == [[1, 2, 3, 4]]


def test_a_line_breaks_where_commits_were_not_measured() -> None:
    assert positions(*map(a_point, (1, 2, 7, 8, 9, 30, 31, 32, 33))) == [[1, 2], [7, 8, 9], [30, 31, 32, 33]]


def test_a_line_does_not_break_where_only_every_tenth_commit_is_measured() -> None:
    assert positions(*map(a_point, (10, 20, 31, 40, 52, 60, 100))) == [[10, 20, 31, 40, 52, 60], [100]]


def test_a_line_breaks_where_a_commit_between_was_tried_in_vain() -> None:
    assert positions(*map(a_point, (10, 20)), a_point(25, None), *map(a_point, (30, 40))) == [[10, 20], [30, 40]]


def test_a_line_breaks_where_environment_or_harness_changed() -> None:
    moved = [a_point(1), a_point(2, environment="e2"), a_point(3, environment="e2", harness="h2")]
    assert positions(*moved) == [[1], [2], [3]]


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=30))
def test_segments_keep_every_timed_level_once_and_in_order(tried: list[tuple[int, bool]]) -> None:
    points = [a_point(p, 1e-3 if ok else None) for p, ok in sorted(dict(tried).items())]
    kept = [p for part in positions(*points) for p in part]
    assert kept == [p for p, ok in sorted(dict(tried).items()) if ok]


def test_tokens_per_second_turn_the_interval_around() -> None:
    (level,) = levels([a_point(1, m, tokens=4, index=i) for i, m in enumerate((0.1, 0.2, 0.4))])
    assert value(level, Shown.TOKENS) == (20.0, 10.0, 40.0)
    assert value(level, Shown.METRIC) == (0.2, 0.1, 0.4)


def test_a_workload_without_tokens_is_not_offered_in_tokens() -> None:
    assert options([a_line(a_point(tokens=0))]) == (Shown.METRIC, Shown.CHANGE)
    assert options([a_line(a_point(tokens=1))]) == (Shown.TOKENS, Shown.METRIC, Shown.CHANGE)


def test_a_change_view_is_about_the_lines_own_median() -> None:
    (drawn,), scale = draw([a_line(*(a_point(p, m) for p, m in ((1, 1.0), (2, 1.0), (3, 1.25))))], Shown.CHANGE)
    assert [round(triple[0], 9) for part in drawn.parts for _, triple in part] == [0, 0, -20]
    assert scale.unit == "%"


def test_what_changed_around_the_code_is_marked_once_for_all_lines() -> None:
    points = [a_point(1), a_point(2, environment="e2"), a_point(3, environment="e2", harness="h2")]
    known = {"e1": Environment(driver="580", torch="2.11"), "e2": Environment(driver="590", torch="2.11")}
    lines = [a_line(*points), a_line(*points, series=a_series("modular", id=2))]
    driver, harness = marks(lines, known)
    assert (driver.kind, driver.position, driver.label) == (MarkKind.ENVIRONMENT, 2, "driver")
    assert driver.text == "environment: driver 580 → 590"
    assert (harness.kind, harness.position, harness.text) == (MarkKind.HARNESS, 3, "harness: h1 → h2")


def test_an_unknown_environment_is_named_by_its_fingerprint() -> None:
    (mark,) = marks([a_line(a_point(1), a_point(2, environment="e2"))], {})
    assert mark.text == "environment: e1 → e2"


def test_an_alert_that_more_data_took_back_asks_for_nobody() -> None:
    assert stands(an_alert(1))
    assert not stands(an_alert(1, found=False), recovered_too=True)
    assert not stands(an_alert(1, recovered=True))
    assert stands(an_alert(1, recovered=True), recovered_too=True)
