from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import pytest

from dashboard import charts, palette
from dashboard.levels import Shown, levels
from dashboard.marks import marks
from dashboard.tonight import Entry, sections
from perfci.changes import Standing, Verdict
from perfci.model import Direction, Environment, Status
from perfci.store.rows import Point, SeriesRow
from tests.build import a_commit
from tests.dashboard.rows import a_line, a_point, a_series, an_alert


def named(figure: go.Figure, name: str) -> Any:
    return next(trace for trace in figure.data if trace.name == name)


def an_entry(*points: Point, series: SeriesRow, status: Status = Status.OK, reason: str = "") -> Entry:
    (level,) = levels(points)
    return Entry(series, level, status, reason, Standing(1.0, 10, Verdict.WITHIN_SPREAD))


def side_by_side(*entries: Entry) -> go.Figure:
    (section,) = sections(entries)
    return charts.side_by_side(section)


def history(*points: Point, **more: Any) -> go.Figure:
    return charts.history([a_line(*points)], shown=more.pop("shown", Shown.TOKENS), **more)


def test_a_dot_is_in_tokens_per_second_with_the_range_of_its_processes() -> None:
    three = [a_point(1, m, index=i) for i, m in enumerate((1.0e-3, 0.8e-3, 1.25e-3))]
    figure = side_by_side(an_entry(*three, series=a_series()))
    (dot,) = figure.data
    assert (dot.x[0], dot.y[0]) == (1000.0, "modular-pdl")
    assert dot.x[0] + dot.error_x.array[0] == 1250.0
    assert dot.x[0] - dot.error_x.arrayminus[0] == 800.0
    assert dot.customdata[0][0] == a_commit(1).sha
    assert figure.layout.xaxis.title.text == "tokens/s"
    assert figure.layout.shapes[0].x0 == 2000.0  # the ceiling: 1 token in 0.5 ms
    assert "50.0 % of the ceiling" in dot.hovertemplate
    assert (dot.x[1], dot.text[1].strip(), dot.marker.opacity[1]) == (
        1250.0,
        "1\u2009000",
        0,
    )  # words beside the interval


def test_a_ceiling_far_beyond_every_result_does_not_squeeze_them() -> None:
    figure = side_by_side(an_entry(a_point(1, 1e-3, floor=1e-6), series=a_series()))
    assert not figure.layout.shapes


def test_a_workload_without_tokens_is_drawn_in_its_metric() -> None:
    figure = side_by_side(an_entry(a_point(1, 2e-5, tokens=0), series=a_series()))
    assert figure.data[0].x[0] == pytest.approx(20.0)
    assert figure.layout.xaxis.title.text == "µs"


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.OK])
def test_what_was_not_timed_stands_by_name_with_its_reason_and_without_a_number(status: Status) -> None:
    failed = an_entry(a_point(1, None, status=status), series=a_series("modular"), status=status, reason="<why>")
    figure = side_by_side(failed, an_entry(a_point(), series=a_series()))
    trace = named(figure, "modular")
    assert trace.x[0] == 0
    assert trace.text[0].strip() == f"{status.value}: &lt;why&gt;"
    assert trace.marker.color == palette.NEUTRAL


def test_an_unverified_dot_is_hollow_and_says_so() -> None:
    figure = side_by_side(an_entry(a_point(verified=False), series=a_series()))
    assert figure.data[0].marker.symbol.endswith("-open")
    assert "unverified" in figure.data[0].text[1]


def test_an_implementation_has_one_colour_on_every_chart() -> None:
    dots = side_by_side(an_entry(a_point(), series=a_series("megakernel")))
    lines = charts.history([a_line(a_point(), series=a_series("megakernel"))], shown=Shown.TOKENS)
    assert dots.data[0].marker.color == named(lines, "megakernel").line.color == palette.look("megakernel").colour


def test_a_history_is_drawn_by_position_and_hands_back_commits() -> None:
    figure = history(a_point(3, 1e-3), a_point(7, 2e-3))
    line = named(figure, "modular-pdl")
    assert [x for x in line.x if x is not None] == [3, 7]
    assert [y for y in line.y if y is not None] == [1000.0, 500.0]
    assert [row[0] for row in line.customdata if row[0]] == [a_commit(3).sha, a_commit(7).sha]
    assert figure.layout.yaxis.title.text == "tokens/s"


def test_nothing_is_drawn_across_a_gap() -> None:
    line = named(history(*map(a_point, (1, 2, 3, 9, 10))), "modular-pdl")
    assert list(line.x) == [1, 2, 3, None, 9, 10]
    assert list(line.y)[3] is None
    assert line.connectgaps is False


def test_few_points_have_error_bars_and_many_a_band_that_keeps_the_gaps() -> None:
    few = history(*(a_point(p, m, index=i) for p in (1, 2) for i, m in enumerate((1e-3, 2e-3, 4e-3))))
    (line,) = few.data
    assert line.error_y.visible
    assert (line.y[0] + line.error_y.array[0], line.y[0] - line.error_y.arrayminus[0]) == (1000.0, 250.0)
    many = history(*(a_point(p, m, index=i) for p in (*range(1, 50), 60) for i, m in enumerate((1e-3, 2e-3))))
    band, line = many.data
    assert not line.error_y.visible
    assert band.fill == "toself"
    assert list(band.x)[49] == 49  # there and back, then a break
    assert list(band.x)[98:] == [None, 60, 60, None]
    assert list(band.y)[99:101] == [1000.0, 500.0]


def test_failures_are_marks_below_the_chart_under_their_status() -> None:
    figure = history(a_point(1), a_point(2, None, status=Status.BUILD_FAILED, reason="no <gcc>"), a_point(3))
    below = next(trace for trace in figure.data if trace.yaxis == "y3")
    assert (list(below.x), list(below.y)) == ([2], ["build_failed"])
    assert below.customdata[0][4] == "no &lt;gcc&gt;"
    assert below.customdata[0][0] == a_commit(2).sha
    assert list(figure.layout.yaxis3.categoryarray) == ["build_failed"]
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis3.domain[1]


def test_a_history_of_failures_alone_still_names_its_lines() -> None:
    figure = history(a_point(1, None), a_point(2, None))
    (below,) = figure.data
    assert below.showlegend


def test_environment_and_harness_changes_are_vertical_marks_with_their_words() -> None:
    line = a_line(a_point(1), a_point(2, environment="e2"), a_point(3, environment="e2", harness="h2"))
    known = {"e1": Environment(driver="580"), "e2": Environment(driver="590")}
    figure = charts.history([line], shown=Shown.TOKENS, marks=marks([line], known))
    assert [(shape.x0, shape.line.dash) for shape in figure.layout.shapes] == [(1.5, "dash"), (2.5, "dot")]
    words = named(figure, "changes around the code")
    assert [row[1] for row in words.customdata] == ["environment: driver 580 → 590", "harness: h1 → h2"]
    assert [row[0] for row in words.customdata] == ["", ""]  # a click on it chooses no commit


@pytest.mark.parametrize(
    ("ratio", "direction", "shown", "symbol"),
    [
        (1.25, Direction.LOWER, "\u221220.0 %", "triangle-down"),
        (0.8, Direction.LOWER, "+25.0 %", "triangle-up"),
        (1.25, Direction.HIGHER, "+25.0 %", "triangle-up"),
        (0.8, Direction.HIGHER, "\u221220.0 %", "triangle-down"),
    ],
)
def test_an_alert_sits_on_its_line_and_says_the_gain(
    ratio: float, direction: Direction, shown: str, symbol: str
) -> None:
    series = a_series(direction=direction)
    line = a_line(*map(a_point, (1, 2, 3)), series=series)
    alert = an_alert(2, ratio=ratio, series=series)
    figure = charts.history([line], shown=Shown.METRIC, alerts=[alert])
    trace = figure.data[-1]
    assert (trace.x[0], trace.marker.symbol) == (2, symbol)
    assert trace.y[0] == pytest.approx(1.0)  # ms
    assert figure.layout.annotations[0].text == shown
    assert trace.customdata[0][0] == a_commit(2).sha


def test_an_alert_of_a_commit_without_a_value_is_drawn_nowhere() -> None:
    figure = charts.history(
        [a_line(a_point(1), a_point(2, None))], shown=Shown.TOKENS, alerts=[an_alert(2), an_alert(9)]
    )
    assert not figure.layout.annotations


def test_an_alert_of_another_series_is_not_drawn() -> None:
    other = an_alert(1, series=a_series("modular", id=99))
    assert not history(a_point(1), alerts=[other]).layout.annotations


def test_the_selected_commit_is_marked_and_an_unknown_one_is_not() -> None:
    assert [shape.x0 for shape in history(a_point(4), selected=a_commit(4).sha).layout.shapes] == [4]
    assert not history(a_point(4), selected="f" * 40).layout.shapes


def test_hostile_names_are_text_in_every_label() -> None:
    evil = "<b>x</b><a href='javascript:alert(1)'>y</a>"
    commit = a_commit(1, subject=evil)
    line = a_line(a_point(1, commit=commit), a_point(1, None, commit=commit, reason=evil), series=a_series(evil))
    figure = charts.history([line], shown=Shown.TOKENS, alerts=[an_alert(1, series=line.series)])
    assert "<a " not in figure.to_json().replace("\\u003c", "<")


def test_a_line_never_sends_more_points_than_a_screen_shows() -> None:
    figure = history(*map(a_point, range(1, charts.MOST_POINTS + 100)))
    line = named(figure, "modular-pdl")
    assert len(line.x) == charts.MOST_POINTS
    assert line.x[-1] == charts.MOST_POINTS + 99


@pytest.mark.parametrize(
    ("places", "shown"),
    [((), []), ((5,), [5]), ((1, 2), [1, 2]), (range(1, 366), [1, 62, 123, 184, 245, 306, 365])],
)
def test_ticks_are_commits_that_were_measured(places: Sequence[int], shown: list[int]) -> None:
    assert list(history(*map(a_point, places)).layout.xaxis.tickvals) == shown


def test_a_tick_tells_commit_and_date() -> None:
    assert history(a_point(1)).layout.xaxis.ticktext[0] == f"{a_commit(1).sha[:9]}<br>2026-12-01"


def test_nothing_to_draw_is_an_empty_figure() -> None:
    assert not charts.history([], shown=Shown.METRIC).data
