"""What a night is about to measure: by the schedule or by hand, on nodes that are alive, within its budget."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perfci import config, nightly, report
from perfci.bench import probe
from perfci.errors import SettingsError, SourceError
from perfci.model import Commit
from perfci.store import progress, reads, writes
from perfci.tonight import announced, night
from tests.build import H200, a_run, an_artifact
from tests.nightly.airflow_server import a_worker, password, serving
from tests.nightly.place import BENCHMARK, SETTINGS, Place

HERE = probe.hardware()
NOW = datetime(2027, 1, 15, 2, 0, tzinfo=UTC)
DAY = timedelta(days=1)
TEAM = """
[hardware.h200]
match = "H200"
queue = "gpu"
[hardware.b200]
queue = "blackwell"
[service]
executor = "EdgeExecutor"
"""


def head(place: Place) -> str:
    return place.repository.git("rev-parse", "HEAD")


def known(place: Place, sha: str, *, at: datetime, minutes: float = 0.5, **more: Any) -> None:
    """A process at this commit that took so long is in the database, as if it had been measured."""
    facts = {"suite": "toy", "hardware": HERE, "session": f"night-{at:%m%d%H}"} | more
    run = a_run(commit=Commit(sha, (), None, None, ""), started_at=at, **facts)
    run = replace(run, finished_at=at + timedelta(minutes=minutes))
    nightly.opened(config.load(place.config)).dispose()
    writes.ingest(place.engine, an_artifact(run), path="a")


def scheduled(place: Place, at: datetime, **more: Any) -> dict[str, Any]:
    return nightly.plan(place.path, scheduled=True, session=f"night-{at:%m%d%H}", now=at, **more)


def shas(planned: dict[str, Any]) -> list[str]:
    return [job["sha"] for job in planned["jobs"]]


def lacking(planned: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["suite"], each["hardware"], each["reason"]) for each in planned["absences"]]


# ------------------------------------------------------------------------------------------------ the schedule


def test_nights_without_a_new_commit_measure_nothing_until_the_audit(place: Place) -> None:
    place.config.write_text(f"{SETTINGS}[policy]\naudit_nights = 3\n", "utf-8")
    first = scheduled(place, NOW)
    assert [(job["sha"], job["reason"], job["priority"]) for job in first["jobs"]] == [(head(place), "nightly", 50)]
    known(place, head(place), at=NOW, session=first["session"])
    for number in (1, 2):
        quiet = scheduled(place, NOW + number * DAY)
        assert (shas(quiet), lacking(quiet)) == ([], [("toy", HERE.name, "unaffected")])
    audit = scheduled(place, NOW + 3 * DAY)
    assert [(job["sha"], job["reason"]) for job in audit["jobs"]] == [(head(place), "audit")]
    assert any("the audit after 2 nights without news" in note for note in audit["notes"])
    known(place, head(place), at=NOW + 3 * DAY, session=audit["session"])
    assert shas(scheduled(place, NOW + 4 * DAY)) == []


def test_a_quiet_night_is_told_and_no_failure(place: Place) -> None:
    known(place, head(place), at=NOW)
    planned = scheduled(place, NOW + DAY)
    (line,) = announced(planned)
    assert line.startswith(f"nothing new: toy on {HERE.name}: no new commit since {head(place)[:9]}")
    told = night(place.engine, planned["session"], policy=config.Policy())
    assert report.exit_code(told) == 0
    assert line[:60] in report.night_table(told)
    assert report.night_json(told)["absences"][0]["reason"] == "unaffected"


def test_a_commit_that_touches_none_of_the_suites_files_is_no_news(place: Place) -> None:
    known(place, head(place), at=NOW)
    place.repository.commit({"README": "words"}, "Say it better")
    planned = scheduled(place, NOW + DAY)
    assert shas(planned) == []
    assert '"Say it better" leaves the suite\'s files as they were' in planned["absences"][0]["text"]
    touched = place.repository.commit({"bench/note.txt": "1"})
    assert shas(scheduled(place, NOW + DAY)) == [touched]


def test_a_person_gets_the_newest_commit_measured_all_the_same(place: Place) -> None:
    known(place, head(place), at=NOW)
    newest = place.repository.commit({"README": "words"})
    known(place, newest, at=NOW + DAY)
    planned = nightly.plan(place.path)
    assert [(job["sha"], job["reason"]) for job in planned["jobs"]] == [(newest, "by hand")]
    assert planned["absences"] == []


def test_a_commit_of_which_only_the_nodes_errors_are_known_is_tried_again(place: Place) -> None:
    known(place, head(place), at=NOW, status="error", measurements=[], reason="the GPU fell off")
    assert shas(scheduled(place, NOW + DAY)) == [head(place)]


# ------------------------------------------------------------------------------------------------ made again


def test_a_plan_that_is_made_again_for_its_session_is_the_same_and_doubles_nothing(place: Place) -> None:
    place.repository.commit({"bench/note.txt": "1"})
    place.repository.commit({"bench/note.txt": "2"})
    first = scheduled(place, NOW, last=3)
    for job in first["jobs"][:2]:
        known(place, job["sha"], at=NOW, session=first["session"], index=job["first_index"])
    again = scheduled(place, NOW, last=3)
    assert again["jobs"] == first["jobs"]
    assert len(again["jobs"]) == 3
    known(place, first["jobs"][2]["sha"], at=NOW, session=first["session"], index=2)
    quiet = [scheduled(place, NOW + DAY) for _ in range(3)]
    assert quiet[0] == quiet[1] == quiet[2]
    assert [row.reason for row in reads.absences(place.engine, quiet[0]["session"])] == ["unaffected"]


def test_a_scheduled_nights_name_follows_from_its_run_in_airflow() -> None:
    name = nightly.session_of("scheduled__2027-01-15T02:00:00+00:00", NOW)
    assert name == nightly.session_of("scheduled__2027-01-15T02:00:00+00:00", NOW)
    assert name.startswith("nightly-20270115T020000Z-")
    assert name != nightly.session_of("scheduled__2027-01-16T02:00:00+00:00", NOW)


# ------------------------------------------------------------------------------------------------ how far it has come


def counted(place: Place, session: str) -> tuple[int, int, bool]:
    found = progress.of(place.engine, session)
    assert found is not None
    return found.finished, found.planned, found.unfinished


def test_an_unfinished_night_says_how_many_of_its_processes_are_there(place: Place) -> None:
    place.config.write_text(SETTINGS.replace("runs = 1", "runs = 3"), "utf-8")
    place.repository.commit({"bench/note.txt": "1"})
    planned = scheduled(place, NOW, last=2)
    session = planned["session"]

    def table() -> str:
        return report.night_table(night(place.engine, session, policy=config.Policy()))

    assert "Nothing was measured in session night-011502.\n\n0 of 6 processes so far.\n" in table()
    known(place, head(place), at=NOW, session=session, index=3)
    assert "\n\n1 of 6 processes so far.\n" in table()
    assert scheduled(place, NOW, last=2)["jobs"] == planned["jobs"]
    assert counted(place, session) == (1, 6, True)
    told = report.night_json(night(place.engine, session, policy=config.Policy()))["progress"]
    assert (told["finished"], told["planned"]) == (1, 6)
    for index in (0, 1, 2, 4, 5):
        known(place, planned["jobs"][index // 3]["sha"], at=NOW, session=session, index=index)
    assert "so far" not in table()


def test_a_night_without_jobs_has_nothing_left_to_do(place: Place) -> None:
    known(place, head(place), at=NOW)
    assert counted(place, scheduled(place, NOW + DAY)["session"]) == (0, 0, False)


def test_a_night_with_a_failed_build_is_finished_when_it_is_judged(place: Place) -> None:
    place.config.write_text(SETTINGS.replace("runs = 1", "runs = 3"), "utf-8")
    planned = scheduled(place, datetime(2027, 1, 1, tzinfo=UTC))
    (job,), session = planned["jobs"], planned["session"]
    known(place, job["sha"], at=NOW, session=session, status="build_failed", measurements=[], reason="no compiler")
    assert counted(place, session) == (1, 3, True)
    for _ in range(2):
        nightly.detect(place.path, session, planned["jobs"])
        assert counted(place, session) == (1, 1, False)


# ------------------------------------------------------------------------------------------------ nodes


def team(place: Place, port: int = 1, more: str = "") -> None:
    place.config.write_text(f"{SETTINGS}{TEAM}airflow_port = {port}\n{more}", "utf-8")


def test_hardware_without_a_live_node_is_missing_and_the_other_one_is_measured(place: Place) -> None:
    password(place.state)
    rows = [
        a_worker("node-a", "idle", ["gpu"], NOW),
        a_worker("node-b", "offline", ["blackwell"], NOW - DAY),
        a_worker("node-c\x1b[31m", "unknown", ["blackwell", "gpu"], NOW - 2 * DAY),
    ]
    with serving(rows) as port:
        team(place, port)
        planned = scheduled(place, NOW)
    assert [job["hardware"] for job in planned["jobs"]] == ["h200"]
    (absence,) = planned["absences"]
    assert absence == {
        "suite": "toy",
        "hardware": "b200",
        "reason": "no_node",
        "text": "no live node serves queue 'blackwell': node-b is offline, last seen 2027-01-14 02:00 UTC; "
        f'node-c?[31m is unknown, last seen 2027-01-13 02:00 UTC; {head(place)[:9]} "Sum numbers" waits for it',
    }
    told = night(place.engine, planned["session"], policy=config.Policy())
    assert report.exit_code(told) == 2
    assert "missing: toy on b200: no live node serves queue 'blackwell'" in report.night_table(told)


@pytest.mark.parametrize(
    ("row", "alive"),
    [
        (a_worker("n", "running", ["gpu"], NOW - timedelta(minutes=1)), True),
        (a_worker("n", "starting", ["gpu", "blackwell"], NOW), True),
        (a_worker("n", "idle", None, NOW), True),  # serves every queue
        (a_worker("n", "idle", ["gpu"], NOW - timedelta(minutes=6)), False),
        (a_worker("n", "idle", ["blackwell"], NOW), False),
        (a_worker("n", "maintenance mode", ["gpu"], NOW), False),
        (a_worker("n", "terminating", ["gpu"], NOW), False),
        (a_worker("n", "idle", ["gpu"], None), False),
    ],
)
def test_a_node_counts_that_serves_the_queue_and_was_heard_of(place: Place, row: dict[str, Any], alive: bool) -> None:
    password(place.state)
    with serving([row]) as port:
        team(place, port)
        planned = nightly.plan(place.path, hardware=["h200"], now=NOW)
    assert bool(planned["jobs"]) is alive
    assert bool(planned["absences"]) is not alive


def test_where_nobody_can_say_which_nodes_are_alive_everything_is_planned_with_a_note(place: Place) -> None:
    team(place)
    planned = nightly.plan(place.path, now=NOW)
    assert len(planned["jobs"]) == 2
    assert any("Airflow's password is not here" in note for note in planned["notes"])
    password(place.state)
    planned = nightly.plan(place.path, now=NOW)  # nothing listens on port 1
    assert len(planned["jobs"]) == 2
    assert any("127.0.0.1:1" in note for note in planned["notes"])


def test_another_executor_or_none_asks_nobody(place: Place) -> None:
    team(place)
    place.config.write_text(place.config.read_text("utf-8").replace("EdgeExecutor", "CeleryExecutor"), "utf-8")
    planned = nightly.plan(place.path, now=NOW)
    assert (len(planned["jobs"]), planned["absences"], planned["notes"]) == (2, [], [])


def test_a_filter_of_hardware_plans_exactly_that(place: Place) -> None:
    team(place)
    assert [job["hardware"] for job in nightly.plan(place.path, hardware=["b200"])["jobs"]] == ["b200"]
    with pytest.raises(SettingsError, match=r"'b20'; did you mean 'b200'"):
        nightly.plan(place.path, hardware=["b20"])


# ------------------------------------------------------------------------------------------------ budget


def budget(minutes: float) -> str:
    return f"[hardware.{HERE.name}]\nnight_minutes = {minutes}\n"


def test_what_exceeds_the_nights_minutes_is_cut_by_name_and_what_waited_longest_is_measured(place: Place) -> None:
    other = '[suite.other]\nrepo = "repo"\nrun = "pytest bench"\nruns = 1\n'
    place.config.write_text(f"{SETTINGS}{other}{budget(12)}", "utf-8")
    old = head(place)
    known(place, old, at=NOW - 2 * DAY, minutes=7)
    known(place, old, at=NOW - 3 * DAY, minutes=8, suite="other")
    new = place.repository.commit({"bench/note.txt": "1"}, "Take a note")
    planned = scheduled(place, NOW)
    assert [job["suite"] for job in planned["jobs"]] == ["other"]
    (cut,) = planned["absences"]
    assert (cut["suite"], cut["reason"]) == ("toy", "budget")
    assert cut["text"] == (
        f'{new[:9]} "Take a note" (about 7 min): of 12 device minutes a night 0 were spent before it, and 4 are left '
        "beside what comes first"
    )
    known(place, new, at=NOW, minutes=8, suite="other", session=planned["session"])
    told = night(place.engine, planned["session"], policy=config.Policy())
    assert "cut by the budget: toy on" in report.night_table(told)
    assert "device minutes: " in report.night_table(told)
    assert report.night_json(told)["device_seconds"] == {HERE.name: 480.0}
    # The next night it is the one that has waited longest.
    place.repository.commit({"bench/note.txt": "2"})
    assert [job["suite"] for job in scheduled(place, NOW + DAY)["jobs"]] == ["toy"]


def test_device_time_that_was_taken_earlier_in_the_night_counts_and_that_of_this_plan_does_not(place: Place) -> None:
    place.config.write_text(SETTINGS + budget(10), "utf-8")
    old = head(place)
    known(place, old, at=NOW - 2 * DAY, minutes=4)
    place.repository.commit({"bench/note.txt": "1"})
    planned = scheduled(place, NOW)
    assert len(planned["jobs"]) == 1
    known(place, head(place), at=NOW, minutes=9, session=planned["session"])
    assert scheduled(place, NOW)["jobs"] == planned["jobs"]
    known(place, old, at=NOW - timedelta(hours=3), minutes=9, session="somebody's")
    assert lacking(scheduled(place, NOW)) == [("toy", HERE.name, "budget")]


def test_a_suite_of_which_nothing_is_known_is_not_cut(place: Place) -> None:
    place.config.write_text(SETTINGS + budget(0.01), "utf-8")
    assert len(scheduled(place, NOW)["jobs"]) == 1


def test_a_night_of_nothing_but_cuts_is_not_green(place: Place) -> None:
    place.config.write_text(SETTINGS + budget(1), "utf-8")
    known(place, head(place), at=NOW - DAY, minutes=5)
    place.repository.commit({"bench/note.txt": "1"})
    planned = scheduled(place, NOW)
    assert planned["jobs"] == []
    assert report.exit_code(night(place.engine, planned["session"], policy=config.Policy())) == 2


# ------------------------------------------------------------------------------------------------ what goes wrong


def test_a_job_that_gave_less_than_it_was_to_is_missing_by_name_until_it_has_come(place: Place) -> None:
    place.config.write_text(SETTINGS.replace("runs = 1", "runs = 2") + budget(3), "utf-8")
    place.repository.commit({"bench/note.txt": "1"}, "Take a note")
    planned = scheduled(place, NOW, last=2)
    first, second = planned["jobs"]
    known(place, first["sha"], at=NOW, session=planned["session"], index=0)

    def judged() -> list[tuple[str, str]]:
        nightly.detect(place.path, planned["session"], planned["jobs"])
        return [(row.reason.value, row.text) for row in reads.absences(place.engine, planned["session"])]

    when = "had come back when the night was judged"
    one = f'1 of 2 processes of {first["sha"][:9]} "Sum numbers"'
    assert judged() == [("no_node", f'{one}, none of 2 processes of {second["sha"][:9]} "Take a note" {when}')]
    assert counted(place, planned["session"])[:2] == (1, 4)
    assert report.exit_code(night(place.engine, planned["session"], policy=config.Policy())) == 2
    # A build that fails gives one result for all its processes.
    facts = {"status": "build_failed", "measurements": [], "reason": "no compiler"}
    known(place, second["sha"], at=NOW, session=planned["session"], index=2, **facts)
    assert judged() == [("no_node", f"{one} {when}")]
    assert counted(place, planned["session"])[:2] == (2, 3)
    known(place, first["sha"], at=NOW, session=planned["session"], index=1)
    assert judged() == []
    assert counted(place, planned["session"]) == (3, 3, False)


def test_what_was_told_when_the_night_was_planned_stays_when_it_is_judged(place: Place) -> None:
    place.config.write_text(SETTINGS + budget(1), "utf-8")
    known(place, head(place), at=NOW - DAY, minutes=5)
    place.repository.commit({"bench/note.txt": "1"})
    planned = scheduled(place, NOW)
    nightly.detect(place.path, planned["session"], planned["jobs"])
    assert [row.reason.value for row in reads.absences(place.engine, planned["session"])] == ["budget"]


def test_a_quiet_suite_beside_one_that_cannot_be_planned_is_still_told(place: Place) -> None:
    place.config.write_text(f'{SETTINGS}[suite.gone]\nrepo = "nowhere"\nrun = "pytest"\n', "utf-8")
    known(place, head(place), at=NOW)
    planned = scheduled(place, NOW + DAY)
    assert lacking(planned) == [("toy", HERE.name, "unaffected")]
    assert "nowhere" in planned["problems"][0]
    place.config.write_text('[suite.gone]\nrepo = "nowhere"\nrun = "pytest"\n', "utf-8")
    with pytest.raises(SourceError, match="nowhere"):
        nightly.plan(place.path)


def test_a_plan_is_json(place: Place) -> None:
    known(place, head(place), at=NOW, hardware=H200)
    place.repository.commit({"bench/test_toy.py": BENCHMARK + "\n"}, 'Say "hello" \N{SNOWMAN}')
    planned = scheduled(place, NOW + DAY)
    assert json.loads(json.dumps(planned, allow_nan=False)) == planned
