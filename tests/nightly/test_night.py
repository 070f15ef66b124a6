"""Whole nights on a real repository, with real processes and a real database, without Airflow."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perfci import config, measure, nightly, report
from perfci.errors import DeviceError, SettingsError, SourceError, StoreError
from perfci.model import Origin, Status
from perfci.store import reads
from perfci.store.engine import connect
from perfci.tonight import announced
from tests.nightly.place import BENCHMARK, OTHER, SETTINGS, Place, processes_in, quiet, wait_for

SUMS = ("bench/test_toy.py::test_sum[1000]", "bench/test_toy.py::test_sum[10]")


def test_a_night_of_a_plain_benchmark_suite_is_planned_measured_stored_and_shown(pair: Place) -> None:
    night = pair.night()
    assert report.exit_code(night) == 0
    (section,) = night.sections
    assert (section.suite, section.subject, section.processes) == ("toy", "Sum numbers", 2)
    found = pair.results()
    assert sorted(row.workload for row in found) == sorted(SUMS)
    for row in found:
        assert (row.status, row.verified, row.origin, row.n_runs) == (Status.OK, False, Origin.MEASURED, 2)
        assert row.median_s is not None
        assert 0 < row.median_s < 1
        assert row.tokens_per_second is None
    text = report.night_table(night)
    assert "ok, unverified" in text
    assert all(name in text for name in SUMS)


def test_every_measured_file_is_kept_by_its_hash_and_the_incoming_folder_is_empty(place: Place) -> None:
    place.night()
    kept = [path.relative_to(place.folder) for path in (place.state / "artifacts").rglob("*.json")]
    stored = [run.artifact_sha256 for run in reads.runs(place.engine, suite="toy")]
    assert sorted(map(str, kept)) == sorted(f".perfci/artifacts/{sha[:2]}/{sha}.perfci.json" for sha in stored)
    assert list((place.state / "incoming").glob("*.json")) == []
    assert not list((place.state / "worktrees").glob("toy*"))


def test_a_second_night_on_the_same_commit_adds_evidence_and_no_duplicate(place: Place) -> None:
    place.night()
    night = place.night()
    assert [row.n_runs for row in place.results()] == [2, 2]
    assert reads.counts(place.engine)["commit"] == 1
    assert "2 with those of earlier nights" in report.night_table(night)


def test_last_measures_the_newest_commits_in_the_order_of_the_branch_and_skips_what_is_known(place: Place) -> None:
    first = place.repository.git("rev-parse", "HEAD")
    place.night()
    shas = [first, *(place.repository.commit({"bench/note.txt": f"{i}"}, f"Note {i}") for i in range(3))]
    planned = nightly.plan(place.path, last=4)
    assert [job["sha"] for job in planned["jobs"]] == shas[1:]
    assert [job["position"] for job in planned["jobs"]] == [2, 3, 4]
    assert [job["first_index"] for job in planned["jobs"]] == [0, 1, 2]
    assert planned["notes"] == [
        f"toy on {planned['jobs'][0]['hardware']}: 1 of the 4 newest commits are measured already"
    ]


def test_the_newest_commit_is_measured_again_and_older_ones_are_not(place: Place) -> None:
    place.night()
    newest = place.repository.commit({"bench/note.txt": "1"})
    place.night()
    assert [job["sha"] for job in nightly.plan(place.path, last=2)["jobs"]] == [newest]


def test_named_revisions_are_measured_whatever_is_known_of_them(place: Place) -> None:
    first = place.repository.git("rev-parse", "HEAD")
    place.repository.git("tag", "v1")
    place.night()
    second = place.repository.commit({"bench/note.txt": "1"})
    planned = nightly.plan(place.path, revs=["main", "v1", "HEAD~1"])
    assert [job["sha"] for job in planned["jobs"]] == [first, second]


def test_a_commit_off_the_branch_is_measured_and_never_enters_its_history(place: Place) -> None:
    place.night()
    place.repository.git("checkout", "--quiet", "-b", "topic")
    sha = place.repository.commit({"bench/test_toy.py": BENCHMARK.replace("1000", "2000")}, "Try it")
    night = place.night(revs=["topic"])
    assert {section.commit for section in night.sections} == {sha}
    assert all(row.commit != sha for row in place.results())


def test_a_benchmark_that_vanishes_is_missing_by_name_and_the_night_is_not_green(place: Place) -> None:
    place.repository.commit({"bench/test_more.py": OTHER})
    place.night()
    place.repository.commit({"bench/test_more.py": None}, "Drop the other")
    night = place.night()
    assert report.exit_code(night) == 2
    missing = [row.result.workload for s in night.sections for row in s.rows if row.result.status is Status.MISSING]
    assert missing == ["bench/test_more.py::test_join"]
    assert "bench/test_more.py::test_join" in report.night_table(night)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def test_nothing():\n    assert True\n", set(SUMS)),
        ("raise RuntimeError('broken at import')\n", set(SUMS)),
        ("import os\n\ndef test_crash(benchmark):\n    os._exit(3)\n", set(SUMS)),
    ],
    ids=["no benchmarks", "an import error", "a crash"],
)
def test_a_suite_that_delivers_nothing_is_never_green(place: Place, text: str, names: set[str]) -> None:
    place.night()
    place.repository.commit({"bench/test_toy.py": text}, "Break it")
    night = place.night()
    assert report.exit_code(night) == 2
    told = {row.result.workload for s in night.sections for row in s.rows if row.result.status is not Status.OK}
    assert names <= told


def test_a_build_that_fails_is_told_with_its_logs_end_and_the_next_commit_runs(tmp_path: Path) -> None:
    place = Place(tmp_path, SETTINGS.replace("runs = 1", 'runs = 1\nbuild = "sh bench/build.sh"'))
    place.repository.commit({"bench/test_toy.py": BENCHMARK, "bench/build.sh": "echo well"}, "Good")
    place.repository.commit({"bench/build.sh": "echo no such compiler: zcc; exit 1"}, "Bad")
    place.repository.commit({"bench/build.sh": "echo well again"}, "Good again")
    night = place.night(last=3)
    assert [bool(section.failed) for section in night.sections] == [False, True, False]
    text = report.night_table(night)
    assert "build_failed" in text
    assert "no such compiler: zcc" in text
    assert report.exit_code(night) == 2
    assert {row.status for row in place.results()} == {Status.OK}


def test_two_suites_share_a_night_and_one_that_cannot_be_planned_does_not_stop_the_other(tmp_path: Path) -> None:
    place = Place(tmp_path, SETTINGS + '[suite.gone]\nrepo = "nowhere"\nrun = "pytest"\n')
    place.repository.commit({"bench/test_toy.py": BENCHMARK})
    planned = nightly.plan(place.path)
    assert [job["suite"] for job in planned["jobs"]] == ["toy"]
    (problem,) = planned["problems"]
    assert "nowhere" in problem
    place.measure(planned)
    night = place.finish(planned)
    assert report.exit_code(night) == 2
    assert "nowhere" in report.night_table(night)


def test_a_night_that_was_killed_while_measuring_goes_on_where_it_stopped(pair: Place) -> None:
    planned = nightly.plan(pair.path)
    (job,) = planned["jobs"]
    # What a kill after the first process leaves: its result, and nothing of the second.
    measure.measure(pair.path, dict(job, runs=1), echo=quiet)
    paths = measure.measure(pair.path, job, echo=quiet)
    assert len(paths) == len(set(paths)) == 2
    pair.finish(planned)
    assert sorted(run.index for run in reads.runs(pair.engine, suite="toy")) == [0, 1]


def test_results_of_a_night_that_was_killed_before_ingest_are_stored_by_the_next_one(place: Place) -> None:
    place.measure(nightly.plan(place.path))
    place.night()
    assert [row.n_runs for row in place.results()] == [2, 2]


def test_a_kill_between_the_database_and_the_move_of_the_file_stores_nothing_twice(place: Place) -> None:
    (path, *_) = place.measure(nightly.plan(place.path))
    copy = place.folder / "copy.json"
    shutil.copyfile(path, copy)
    nightly.ingest(place.path)
    shutil.copyfile(copy, path)
    told = nightly.ingest(place.path)
    assert (told["stored"], told["known"]) == (0, 1)
    assert not Path(path).exists()
    assert reads.counts(place.engine)["run"] == 1


def test_every_step_may_be_repeated(place: Place) -> None:
    planned = nightly.plan(place.path, session="night-1")
    assert nightly.plan(place.path, session="night-1") == planned
    place.measure(planned)
    assert len(place.measure(planned)) == 1
    first, again = place.finish(planned), place.finish(planned)
    assert first == again
    assert reads.counts(place.engine)["run"] == 1


def test_a_truncated_and_a_foreign_file_are_set_aside_with_the_reason_and_the_others_are_stored(pair: Place) -> None:
    planned = nightly.plan(pair.path)
    paths = [Path(path) for path in pair.measure(planned)]
    paths[0].write_bytes(paths[0].read_bytes()[:1000])
    (pair.state / "incoming" / "foreign.perfci.json").write_text('{"benchmarks": []}', "utf-8")
    told = nightly.ingest(pair.path)
    assert (told["stored"], len(told["refused"])) == (1, 2)
    for refused in told["refused"]:
        aside = Path(refused["file"])
        assert aside.parent == pair.state / "refused"
        assert aside.with_name(f"{aside.name}.reason.txt").read_text("utf-8").strip() == refused["reason"]
    assert nightly.ingest(pair.path) == {"stored": 0, "known": 0, "sessions": [], "refused": []}


def test_a_named_file_is_copied_and_stays_where_it_is(place: Place) -> None:
    paths = place.measure(nightly.plan(place.path))
    elsewhere = place.folder / "delivered.perfci.json"
    shutil.move(paths[0], elsewhere)
    told = nightly.ingest(place.path, [str(elsewhere)], recorded=True)
    assert told["stored"] == 1
    assert elsewhere.exists()
    (run,) = reads.runs(place.engine, suite="toy")
    assert run.origin is Origin.RECORDED
    assert (place.folder / f".perfci/artifacts/{run.artifact_sha256[:2]}/{run.artifact_sha256}.perfci.json").exists()


@pytest.mark.parametrize("where", ["elsewhere", "../elsewhere"])
def test_the_state_folder_may_lie_outside_of_the_settings_folder(tmp_path: Path, where: str) -> None:
    state = tmp_path / "elsewhere"
    (tmp_path / "settings").mkdir()
    given = str(state) if where == "elsewhere" else where
    place = Place(tmp_path / "settings", f'{SETTINGS}\n[service]\nstate = "{given}"\n')
    place.repository.commit({"bench/test_toy.py": BENCHMARK})
    place.measure(nightly.plan(place.path))
    assert nightly.ingest(place.path)["stored"] == 1
    (run,) = reads.runs(connect(f"sqlite:///{state / 'perfci.db'}"), suite="toy")
    assert (state / f"artifacts/{run.artifact_sha256[:2]}/{run.artifact_sha256}.perfci.json").is_file()
    assert not place.state.exists()


def test_uncommitted_changes_below_the_suites_paths_are_refused_unless_a_revision_is_named(place: Place) -> None:
    (place.repository.folder / "bench" / "test_toy.py").write_text("changed", "utf-8")
    with pytest.raises(SourceError, match=r"test_toy\.py"):
        nightly.plan(place.path)
    assert len(nightly.plan(place.path, revs=["main"])["jobs"]) == 1


def test_an_uncommitted_lock_file_is_refused_too(place: Place) -> None:
    place.config.write_text(f'{SETTINGS}environment = "locks/requirements.txt"\n', "utf-8")
    place.repository.commit({"locks/requirements.txt": "pytest\n"})
    (place.repository.folder / "locks/requirements.txt").write_text("pytest<9\n", "utf-8")
    for refused in (lambda: nightly.plan(place.path), lambda: measure.jobs_by_hand(config.load(place.config), "toy")):
        with pytest.raises(SourceError, match=r"locks/requirements\.txt"):
            refused()


def test_changes_elsewhere_in_the_repository_do_not_matter(place: Place) -> None:
    (place.repository.folder / "README").write_text("changed", "utf-8")
    assert len(nightly.plan(place.path)["jobs"]) == 1


def test_the_state_folder_inside_of_a_repository_does_not_make_it_dirty(tmp_path: Path) -> None:
    place = Place(tmp_path, '[suite.toy]\nrepo = "."\nrun = "pytest bench"\n')
    shutil.move(tmp_path / "repo" / ".git", tmp_path / ".git")
    (tmp_path / "repo").rmdir()
    place.repository.folder = tmp_path
    place.repository.commit({"bench/test_toy.py": BENCHMARK})
    nightly.plan(place.path)
    assert place.repository.git("status", "--porcelain") == ""
    nightly.plan(place.path)


def test_an_unknown_revision_suite_or_branch_names_itself(place: Place) -> None:
    with pytest.raises(SourceError, match="no-such-rev"):
        nightly.plan(place.path, revs=["no-such-rev"])
    with pytest.raises(SettingsError, match="tooy"):
        nightly.plan(place.path, suites=["tooy"])
    with pytest.raises(SettingsError, match="--last 0"):
        nightly.plan(place.path, last=0)
    place.config.write_text(SETTINGS.replace('branch = "main"', 'branch = "trunk"'), "utf-8")
    with pytest.raises(SourceError, match="trunk"):
        nightly.plan(place.path)


def test_a_locked_database_loses_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = nightly.plan(place.path)
    place.measure(planned)
    monkeypatch.setitem(connect.__kwdefaults__ or {}, "busy_timeout_s", 0.2)
    with closing(sqlite3.connect(place.state / "perfci.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            nightly.ingest(place.path)
        connection.execute("ROLLBACK")
    assert len(list((place.state / "incoming").glob("*.json"))) == 1
    place.finish(planned)
    assert [row.n_runs for row in place.results()] == [1, 1]


def test_a_plan_is_json_and_survives_the_way_there_and_back(place: Place) -> None:
    planned = nightly.plan(place.path)
    assert json.loads(json.dumps(planned, allow_nan=False)) == planned


def test_a_team_with_an_executor_measures_each_hardware_that_has_a_queue(place: Place) -> None:
    place.config.write_text(
        SETTINGS
        + '[hardware.h200]\nmatch = "H200"\nqueue = "gpu"\n[hardware.b200]\nqueue = "blackwell"\n[hardware.idle]\n'
        + '[service]\nexecutor = "EdgeExecutor"\n',
        "utf-8",
    )
    jobs = nightly.plan(place.path)["jobs"]
    assert [(job["hardware"], job["queue"], job["executor"]) for job in jobs] == [
        ("h200", "gpu", "EdgeExecutor"),
        ("b200", "blackwell", "EdgeExecutor"),
    ]
    with pytest.raises(DeviceError, match="h200"):
        measure.measure(place.path, jobs[0], echo=quiet)


def test_what_a_night_is_about_to_do_is_announced(place: Place) -> None:
    planned = nightly.plan(place.path)
    (line,) = announced(planned)
    assert planned["jobs"][0]["sha"][:9] in line
    assert line.endswith("1 process")


def test_a_night_that_is_killed_outright_leaves_nothing_behind_and_is_finished_by_the_next(pair: Place) -> None:
    """SIGKILL in the second process; then the same plan again."""
    slow = "import os, time\n\ndef test_slow(benchmark):\n    benchmark.pedantic(sum, args=([1],), rounds=3)\n"
    wait = "    time.sleep(60 if os.environ['PERFCI_INDEX'] == '1' and not os.path.exists(GO) else 0)\n"
    go = pair.folder / "go"
    pair.repository.commit({"bench/test_toy.py": f"GO = {str(go)!r}\n{slow}{wait}"})
    planned = nightly.plan(pair.path)
    (pair.folder / "plan.json").write_text(json.dumps(planned), "utf-8")
    child = pair.start("measure", "plan.json")
    wanted = pair.state / "worktrees"
    wait_for(lambda: any(wanted.glob("*/process-1")))
    (inside,) = {path.parent for path in wanted.glob("*/process-1")}
    child.kill()
    child.communicate(timeout=60)
    wait_for(lambda: not processes_in(inside))
    go.touch()
    assert len(pair.measure(planned)) == 2
    pair.finish(planned)
    assert sorted(run.index for run in reads.runs(pair.engine, suite="toy")) == [0, 1]
    assert [row.n_runs for row in pair.results()] == [2]
    assert not inside.exists() or not any(inside.iterdir())
