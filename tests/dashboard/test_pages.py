"""Both pages in every state that a person may meet, from a real database to what Streamlit would send."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from perfci.model import Control, Origin, Run, RunStatus, Status, Telemetry
from tests.build import ENVIRONMENT, EPOCH, H200, a_commit, a_measurement, a_run, a_workload
from tests.dashboard.conftest import Home

SERIES = "views/series.py"
HOSTILE = "<img src=x onerror=alert(1)> **b** [l](http://x) :smile: :red[r] $x$ `c`"


def night(position: int, *, processes: int = 3, faster: float = 1.0, **more: object) -> list[Run]:
    return [
        a_run(
            [
                a_measurement("torch-eager", [0.0100 * faster * (1 + 0.0001 * (index + k)) for k in range(5)]),
                a_measurement("modular", status=Status.CHECKED, reason="Triton's interpreter on a CPU"),
                a_measurement("modular-graph", status=Status.UNSUPPORTED, reason="needs a CUDA device"),
            ],
            commit=a_commit(position),
            session=f"night-{position}",
            index=index,
            **more,  # type: ignore[arg-type]
        )
        for index in range(processes)
    ]


def said(app: AppTest) -> str:
    """All text on the page but that of tables and charts."""
    kinds = (
        app.title,
        app.subheader,
        app.markdown,
        app.caption,
        app.info,
        app.success,
        app.warning,
        app.error,
        app.text,
    )
    return "\n".join(element.value for kind in kinds for element in kind)


def cells(app: AppTest, table: int = 0) -> list[dict[str, str]]:
    return app.dataframe[table].value.to_dict("records")  # type: ignore[no-any-return]


def styles(app: AppTest, table: int = 0) -> str:
    return str(app.dataframe[table].proto.arrow_data.styler.styles)


def url(app: AppTest, key: str) -> list[str]:
    value = app.query_params.get(key, [])
    return [value] if isinstance(value, str) else list(value)


def charts(app: AppTest) -> int:
    return len(app.get("plotly_chart"))


def healthy(app: AppTest) -> AppTest:
    assert [e.value for e in app.exception] == []
    assert [e.value for e in app.error if "Next:" in e.value] == []
    return app


def plain(markdown: str) -> str:
    return markdown.replace("\\", "").replace("\u2060", "")


def green(app: AppTest) -> bool:
    return bool(app.success)


@pytest.mark.parametrize("page", ["", SERIES])
def test_an_empty_database_tells_the_two_commands_that_fill_it(home: Home, page: str) -> None:
    app = healthy(home.open(page))
    assert "No measurements yet" in said(app)
    assert "perfci nightly" in said(app)
    assert "perfci demo --load" in said(app)
    assert charts(app) == 0


def test_tonight_shows_implementations_side_by_side_with_what_was_not_timed_by_name(home: Home) -> None:
    for position in range(1, 12):
        home.store(*night(position))
    app = healthy(home.open())
    assert charts(app) == 1
    rows = {row["implementation"]: row for row in cells(app)}
    assert list(rows) == ["torch-eager", "modular", "modular-graph"]
    assert rows["torch-eager"]["status"] == "ok"
    assert rows["torch-eager"]["tokens/s"] == "99.97"
    assert rows["torch-eager"]["spread"] == "±0.01 %"
    assert rows["torch-eager"]["processes"] == "3"
    assert rows["torch-eager"]["of the ceiling"] == "9.9 %"
    assert rows["torch-eager"]["against history"] == "+0.00 %, within spread"
    assert rows["torch-eager"]["commit"] == a_commit(11).sha[:9]
    assert rows["modular"]["status"] == "checked"
    assert rows["modular"]["tokens/s"] == "–"
    assert rows["modular"]["reason"] == "Triton's interpreter on a CPU"
    assert rows["modular-graph"]["status"] == "unsupported"
    assert "No open alerts, and nothing went wrong. Newest result: 2026-12-01" in said(app)
    assert green(app)
    assert "measured here" in said(app)


def test_a_suite_without_tokens_is_shown_in_its_own_metric_and_unit(home: Home) -> None:
    sizes = {"tokens": 0, "bytes_moved": 0, "flops": 0, "working_set_bytes": 0}
    home.store(a_run([a_measurement("test_sort", [9.9e-7, 9.9e-7], workload=a_workload("bench.py", **sizes))]))
    (row,) = cells(healthy(home.open()))
    assert (row["latency"], row["of the ceiling"]) == ("990.0 ns", "–")
    assert "tokens/s" not in row
    app = healthy(home.open(SERIES))
    assert app.selectbox(key="select-show").options == ["latency", "change, %"]


def test_one_point_is_shown_without_a_change_and_without_a_spread(home: Home) -> None:
    home.store(*night(1, processes=1))
    (row, *_) = cells(healthy(home.open()))
    assert (row["spread"], row["against history"]) == ("one process", "–")
    app = healthy(home.open(SERIES))
    assert charts(app) == 1


def test_a_change_over_a_short_history_is_not_told_as_one(home: Home) -> None:
    home.store(*night(1), *night(2, faster=0.99))
    (row, *_) = cells(healthy(home.open()))
    assert row["against history"] == "+1.01 %, too few to judge"


@pytest.mark.parametrize(("faster", "told", "dimmed"), [(1.05, "\u22124.76 %", 0), (1.0, "+0.00 %, within spread", 1)])
def test_only_a_change_beyond_the_spread_catches_the_eye(home: Home, faster: float, told: str, dimmed: int) -> None:
    for position in range(1, 12):
        home.store(*night(position, faster=faster if position == 11 else 1.0))
    app = healthy(home.open())
    assert cells(app)[0]["against history"] == told
    assert styles(app).count("color") == dimmed


def test_failures_alone_are_shown_with_their_reasons(home: Home) -> None:
    failed = a_measurement("modular", status=Status.BUILD_FAILED, reason="exit code 1")
    run = a_run([failed], status=RunStatus.BUILD_FAILED, reason="exit code 1", log_tail="ptxas: no such option <b>")
    home.store(run)
    app = healthy(home.open())
    assert cells(app)[0]["status"] == "build_failed"
    assert cells(app)[0]["reason"] == "exit code 1"
    assert not green(app)
    assert [plain(e.value).splitlines()[0] for e in app.warning] == ["**Went wrong: 1 build_failed, 1 broken run**"]
    assert [block.value for block in app.code] == ["ptxas: no such option <b>"]
    app = healthy(home.open(SERIES, commit=run.commit.sha))
    assert charts(app) == 1
    assert "Nothing was timed yet" in said(app)
    assert [block.value for block in app.code] == ["ptxas: no such option <b>"]


def test_an_incorrect_process_takes_the_speed_from_the_row(home: Home) -> None:
    good, bad = night(1, processes=2)
    wrong = a_measurement("torch-eager", status=Status.INCORRECT, reason="logits are off by 0.3")
    home.store(good, a_run([wrong, *bad.measurements[1:]], commit=bad.commit, session=bad.session, index=1))
    app = healthy(home.open())
    row = next(row for row in cells(app) if row["implementation"] == "torch-eager")
    assert (row["status"], row["tokens/s"], row["reason"]) == ("incorrect", "–", "logits are off by 0.3")
    assert not green(app)
    assert "incorrect: torch-eager" in plain(app.error[0].value)


def a_broken_build(position: int, **more: object) -> Run:
    facts = {"status": RunStatus.BUILD_FAILED, "reason": "'make' ended with exit code 2", "log_tail": "ptxas fatal"}
    return a_run([], commit=a_commit(position, subject="Break it"), session=f"night-{position}", **facts, **more)  # type: ignore[arg-type]


def test_a_suite_whose_first_build_fails_is_told_before_it_has_any_series(home: Home) -> None:
    home.store(a_broken_build(1))
    app = healthy(home.open())
    assert not green(app)
    (told,) = (plain(e.value) for e in app.warning)
    assert (
        f"build_failed: kernels {a_commit(1).sha[:9]} “Break it” on cpu-test-2c: 'make' ended with exit code 2" in told
    )
    assert [block.value for block in app.code] == ["ptxas fatal"]
    assert not app.get("page_link")


def test_a_commit_of_which_nothing_was_measured_is_told_and_has_its_runs_on_the_page_of_its_series(home: Home) -> None:
    home.store(*night(1), a_broken_build(2))
    app = healthy(home.open())
    assert not green(app)
    assert "No open alerts." in [e.value for e in app.caption]
    link = next(e.proto for e in app.get("page_link") if "commit=" in e.proto.query_string)
    assert f"commit={a_commit(2).sha}" in link.query_string
    app = healthy(home.open(SERIES, commit=a_commit(2).sha))
    assert app.subheader[0].value.startswith(a_commit(2).sha[:9])
    assert "Nothing of this was measured at this commit" in said(app)
    assert cells(app)[0]["status"] == "build_failed"
    assert [block.value for block in app.code] == ["ptxas fatal"]
    assert app.expander[0].proto.expanded


def test_a_build_that_a_later_commit_mended_is_no_news(home: Home) -> None:
    home.store(a_broken_build(1), *night(2))
    assert green(healthy(home.open()))


def test_unverified_results_are_marked(home: Home) -> None:
    home.store(a_run([a_measurement("mine", verified=False)]))
    assert cells(healthy(home.open()))[0]["status"] == "ok, unverified"
    app = healthy(home.open(SERIES, commit=a_commit().sha))
    assert cells(app)[0]["verified"] == "no"


@pytest.mark.parametrize("page", ["", SERIES])
@pytest.mark.parametrize(
    ("origin", "badge"),
    [
        (Origin.RECORDED, "recorded on h200, 2026-12-01"),
        (Origin.SYNTHETIC, "synthetic: made by a generator, not measured"),
        (Origin.MEASURED, "measured here on h200, 2026-12-01"),
    ],
)
def test_every_page_with_numbers_says_where_they_come_from(home: Home, page: str, origin: Origin, badge: str) -> None:
    home.store(a_run(origin=origin, hardware=H200))
    assert badge in said(healthy(home.open(page)))


def test_the_series_page_takes_its_selection_from_the_url_and_puts_it_back(home: Home) -> None:
    home.store(*night(1), a_run(suite="other", hardware=H200), a_run(suite="other"))
    app = healthy(home.open(SERIES, hardware="h200", show="metric"))
    assert [box.value for box in app.selectbox] == ["h200", "other", "decode/tiny", "metric", ""]
    assert url(app, "suite") == ["other"]
    app.selectbox(key="select-hardware").select("cpu-test-2c").run()
    assert url(app, "hardware") == ["cpu-test-2c"]
    app.selectbox(key="select-suite").select("kernels").run()
    app.multiselect(key="select-implementation").set_value(["modular"]).run()
    assert url(app, "implementation") == ["modular"]
    assert url(healthy(app), "suite") == ["kernels"]


def test_a_selection_in_the_url_that_is_not_on_offer_is_passed_over(home: Home) -> None:
    home.store(*night(1))
    app = healthy(home.open(SERIES, hardware="<script>", commit="0" * 40, show="nonsense", implementation="nobody"))
    assert url(app, "hardware") == ["cpu-test-2c"]
    assert url(app, "show") == ["tokens"]
    assert url(app, "implementation") == ["torch-eager", "modular", "modular-graph"]
    assert url(app, "commit") == [""]


def test_a_commit_in_the_url_opens_its_runs(home: Home) -> None:
    for position in (1, 2, 3):
        home.store(*night(position))
    app = healthy(home.open(SERIES, commit=a_commit(2).sha))
    assert app.subheader[0].value.startswith(a_commit(2).sha[:9])
    processes = cells(app)
    assert [row["process"] for row in processes if row["implementation"] == "torch-eager"] == ["0", "1", "2"]
    assert {row["session"] for row in processes} == {"night-2"}
    assert processes[0]["median"] == "10.00 ms"
    assert [row["session"] for row in cells(app, 1)] == ["night-2"] * 3
    assert cells(app, 2)[0] == {"control": "read bandwidth cache", "value": "40.00 GB/s", "working set": "1.049 MB"}
    assert "torch 2\\.13\\.0" in said(app)


def test_the_controls_of_a_commit_are_those_of_the_processes_shown_and_not_of_a_later_session(home: Home) -> None:
    later = a_run(
        [a_measurement(workload=a_workload("decode/b8"))],
        session="night-2",
        started_at=EPOCH + timedelta(hours=1),
        controls=[Control("read_bandwidth_memory", "B/s", 1e9, 2**32)],
    )
    home.store(*night(1), later)
    app = healthy(home.open(SERIES, workload="decode/tiny", commit=a_commit(1).sha))
    assert [row["session"] for row in cells(app, 1)] == ["night-1"] * 3 + ["night-2"]
    assert {"control": "read bandwidth memory", "value": "10.00 GB/s", "working set": "268.4 MB"} in cells(app, 2)
    app = healthy(home.open(SERIES, workload="decode/b8", commit=a_commit(1).sha))
    assert [row["value"] for row in cells(app, 2)] == ["1.000 GB/s"]


def test_workloads_stand_in_the_order_of_their_numbers_on_both_pages(home: Home) -> None:
    names = ["decode/b1", "decode/b8", "decode/b64"]
    home.store(a_run([a_measurement(workload=a_workload(name)) for name in names]))
    assert [plain(heading.value) for heading in healthy(home.open()).subheader] == [
        f"{n} on cpu-test-2c" for n in names
    ]
    assert list(healthy(home.open(SERIES)).selectbox(key="select-workload").options) == names


@pytest.mark.parametrize("page", ["", SERIES])
def test_the_column_of_a_status_is_wide_enough_for_the_one_that_is_rare(home: Home, page: str) -> None:
    home.store(*night(1, processes=1))
    app = healthy(home.open(page, commit=a_commit(1).sha))
    columns = json.loads(app.dataframe[0].proto.columns)
    assert columns["status"]["width"] >= 7 * len("unsupported")


def test_what_disturbed_a_run_stands_beside_it(home: Home) -> None:
    quiet, shared = night(1, processes=2)
    seen = Telemetry(throttled=("sw_thermal_slowdown",), others=("python (7): 57 % of a core",))
    home.store(quiet, dataclasses.replace(shared, telemetry=seen))
    table = cells(healthy(home.open(SERIES, commit=a_commit(1).sha)), 1)
    assert [row["disturbed by"] for row in table] == ["", "sw_thermal_slowdown; python (7): 57 % of a core"]


def test_an_alert_leads_to_its_commit(home: Home) -> None:
    for position in range(1, 25):
        home.store(*night(position, faster=1.0 if position < 15 else 1.05), detect=f"night-{position}")
    app = healthy(home.open())
    assert "1 open alert" in said(app)
    (link,) = [e.proto for e in app.get("page_link") if "commit=" in e.proto.query_string]
    assert "\u22124.8 % torch-eager, decode/tiny on cpu-test-2c" in link.label.replace("\\", "")
    assert f"commit={a_commit(15).sha}" in link.query_string
    assert "implementation=torch-eager" in link.query_string


def test_a_change_of_environment_is_marked_on_the_chart(home: Home) -> None:
    newer = dataclasses.replace(ENVIRONMENT, driver="590.44")
    home.store(*night(1), *night(2, environment=newer))
    app = healthy(home.open(SERIES))
    assert charts(app) == 1
    assert "driver none → 590.44" in json.dumps(json.loads(app.get("plotly_chart")[0].proto.spec), ensure_ascii=False)


@pytest.mark.parametrize("page", ["", SERIES])
def test_names_from_a_repository_are_shown_and_never_interpreted(home: Home, page: str) -> None:
    commit = a_commit(subject=HOSTILE)
    home.store(a_run([a_measurement(HOSTILE, workload=HOSTILE)], commit=commit, suite="s"))
    app = healthy(home.open(page, commit=commit.sha))
    assert cells(app)[0]["implementation"] == HOSTILE
    for chart in app.get("plotly_chart"):
        assert "<img" not in chart.proto.spec
        assert "&lt;img" in chart.proto.spec
    markdown = "\n".join(e.value for kind in (app.markdown, app.subheader, app.caption) for e in kind)
    assert "<img" not in markdown.replace("\\<img", "")
    assert ":smile:" not in markdown
    assert "**b**" not in markdown


def missing(path: Path) -> None:
    path.unlink()


def not_a_database(path: Path) -> None:
    path.write_bytes(b"this is no database, " * 100)


def old_schema(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")


def without_tables(path: Path) -> None:
    path.write_bytes(b"")


def vanished_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE measurement")


@pytest.mark.parametrize("page", ["", SERIES])
@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (missing, ("there is no database at", "perfci db upgrade")),
        (not_a_database, ("is no SQLite database", "name another file")),
        (old_schema, ("schema of", "Next")),
        (without_tables, ("is not there", "perfci db upgrade")),
        (vanished_table, ("is of another schema", "perfci db upgrade")),
    ],
)
def test_a_database_that_cannot_be_read_is_a_sentence_with_the_next_step(
    home: Home, page: str, harm: object, sentence: Sequence[str]
) -> None:
    home.store(*night(1))
    harm(home.root / ".perfci" / "perfci.db")  # type: ignore[operator]
    app = home.open(page)
    assert [e.value for e in app.exception] == []
    (told,) = (e.value.replace("\\", "") for e in app.error)
    assert [part for part in sentence if part not in told] == []
    assert "Traceback" not in told


def test_a_server_that_is_down_is_a_sentence(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFCI_DATABASE_URL", "postgresql+psycopg://me:secret@127.0.0.1:1/perfci")
    app = home.open()
    (told,) = (e.value.replace("\\", "") for e in app.error)
    assert "cannot be reached" in told
    assert "secret" not in told
    assert [e.value for e in app.exception] == []


def test_a_locked_database_is_a_sentence(home: Home) -> None:
    home.store(*night(1))
    holder = sqlite3.connect(home.root / ".perfci" / "perfci.db", isolation_level=None)
    try:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        app = home.open()
        (told,) = (e.value.replace("\\", "") for e in app.error)
        assert "is locked by another process" in told
    finally:
        holder.close()
    healthy(app.run())


def test_broken_settings_are_a_sentence(home: Home) -> None:
    home.config.write_text("[suite.x\n")
    (told,) = (e.value.replace("\\", "") for e in home.open().error)
    assert "perfci.toml" in told


def test_the_pages_read_postgresql_as_they_read_sqlite(
    home: Home, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFCI_DATABASE_URL", database_url)
    elsewhere = Home(home.root, database_url, home.app)
    elsewhere.store(*night(1), *night(2))
    assert cells(healthy(elsewhere.open()))[0]["tokens/s"] == "99.97"
    assert charts(healthy(elsewhere.open(SERIES, commit=a_commit(2).sha))) == 1


def test_the_dashboard_cannot_write(home: Home) -> None:
    from dashboard import data

    home.store(*night(1))
    with data._engine(home.url).connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.exec_driver_sql("DELETE FROM measurement")
