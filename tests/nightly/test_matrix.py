"""Which suites on which hardware, and which of their commits: what a filter names, and what a schedule leaves out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci import config, matrix
from perfci.errors import SettingsError
from perfci.matrix import Due, Reason
from perfci.model import Commit
from tests.build import a_commit

HERE = "cpu-here-2c"
SUITES = '[suite.a]\nrepo = "."\nrun = "pytest"\n[suite.b]\nrepo = "."\nrun = "pytest"\nhardware = ["h200", "b200"]\n'
HARDWARE = '[hardware.h200]\nqueue = "gpu"\n[hardware.b200]\nqueue = "blackwell"\n[hardware.spare]\n'
TEAM = f'{SUITES}{HARDWARE}[service]\nexecutor = "EdgeExecutor"\n'


def settings(folder: Path, text: str) -> config.Settings:
    (folder / "perfci.toml").write_text(text, "utf-8")
    return config.load(folder / "perfci.toml")


def places(
    folder: Path, text: str = TEAM, *, suites: Sequence[str] = (), hardware: Sequence[str] = (), here: str = HERE
) -> list[tuple[str, str]]:
    found = matrix.matrix(settings(folder, text), suites=suites, hardware=hardware, here=lambda: here)
    return [cell.place for cell in found.cells]


def test_a_team_measures_each_suite_on_each_hardware_that_has_a_queue_and_is_its_own(tmp_path: Path) -> None:
    text = TEAM.replace('["h200", "b200"]', '["b200"]')
    assert places(tmp_path, text) == [("a", "h200"), ("a", "b200"), ("b", "b200")]


def test_one_machine_measures_on_itself_and_says_which_suites_are_for_others(tmp_path: Path) -> None:
    text = SUITES + HARDWARE
    found = matrix.matrix(settings(tmp_path, text), here=lambda: HERE)
    assert [cell.place for cell in found.cells] == [("a", HERE)]
    assert found.notes == (f"suite 'b' is for h200, b200 (its `hardware`), and this is about {HERE}",)
    assert places(tmp_path, text, here="h200") == [("a", "h200"), ("b", "h200")]


@pytest.mark.parametrize(
    ("suites", "hardware", "wanted"),
    [
        (["b"], [], [("b", "h200"), ("b", "b200")]),
        ([], ["b200"], [("a", "b200"), ("b", "b200")]),
        (["a"], ["h200"], [("a", "h200")]),
        (["b", "a"], ["b200"], [("b", "b200"), ("a", "b200")]),
        (["a", "a"], ["h200", "h200"], [("a", "h200")]),
    ],
)
def test_a_filter_names_exactly_what_it_names(
    tmp_path: Path, suites: list[str], hardware: list[str], wanted: list[tuple[str, str]]
) -> None:
    assert places(tmp_path, suites=suites, hardware=hardware) == wanted


@pytest.mark.parametrize(
    ("suites", "hardware", "says"),
    [
        (["aa"], [], "no suite named 'aa' .*'a'"),
        ([], ["h20"], "no hardware 'h20'; did you mean 'h200'"),
        ([], ["tpu"], "no hardware 'tpu'; known: h200, b200, spare"),
        ([], ["h200", "tpu"], "no hardware 'tpu'"),
        ([], ["spare"], "hardware.spare has no queue"),
    ],
)
def test_a_name_that_cannot_be_measured_is_an_error(
    tmp_path: Path, suites: list[str], hardware: list[str], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        places(tmp_path, suites=suites, hardware=hardware)


def test_a_suite_that_is_named_is_not_left_out_with_a_note(tmp_path: Path) -> None:
    text = TEAM.replace('["h200", "b200"]', '["b200"]')
    with pytest.raises(SettingsError, match="suite 'b' is for b200"):
        places(tmp_path, text, suites=["a", "b"], hardware=["h200"])
    with pytest.raises(SettingsError, match="suite 'b' is for h200, b200"):
        places(tmp_path, SUITES + HARDWARE, suites=["b"])


def test_hardware_of_another_machine_is_refused_where_there_is_no_executor(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=rf"'h200' is asked for, and this machine is {HERE}"):
        places(tmp_path, SUITES + HARDWARE, hardware=["h200"])
    assert places(tmp_path, SUITES + HARDWARE, hardware=[HERE]) == [("a", HERE)]


def test_settings_without_a_suite_say_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="names no suite"):
        places(tmp_path, HARDWARE)


# ------------------------------------------------------------------------------------------------ what is due


def due(
    files: str, *, measured: Collection[int], last: int = 1, scheduled: bool = True, quiet: int = 0, nights: int = 7
) -> Due:
    """files: a letter a commit, oldest first; equal letters are equal files. measured: positions."""
    branch = [a_commit(place) for place in range(1, len(files) + 1)]

    def same(one: Commit, other: Commit) -> bool:
        return files[(one.position or 0) - 1] == files[(other.position or 0) - 1]

    return matrix.due(
        branch,
        branch[-last:],
        measured={branch[place - 1].sha for place in measured},
        same_files=same,
        scheduled=scheduled,
        quiet=quiet,
        audit_nights=nights,
    )


def positions(found: Due) -> list[int | None]:
    return [commit.position for commit in found.commits]


def test_the_schedule_measures_a_new_commit_once() -> None:
    assert (positions(due("abc", measured=[])), due("abc", measured=[]).reason) == ([3], Reason.NIGHTLY)
    again = due("abc", measured=[3])
    assert positions(again) == []
    assert "no new commit since" in again.idle
    assert "6 more such nights" in again.idle


def test_the_schedule_leaves_out_a_commit_that_touches_none_of_the_suites_files() -> None:
    found = due("abb", measured=[2])
    assert positions(found) == []
    assert "leaves the suite's files as they were" in found.idle
    assert positions(due("aba", measured=[1, 2])) == [3]  # back to older files is a change
    assert positions(due("abb", measured=[1])) == [3]


def test_of_several_new_commits_those_are_measured_that_differ_from_the_one_before() -> None:
    assert positions(due("aabbc", measured=[1], last=4)) == [3, 5]
    assert positions(due("aabbc", measured=[], last=5)) == [1, 3, 5]


def test_after_enough_nights_without_news_the_last_measured_commit_is_audited() -> None:
    found = due("abb", measured=[2], quiet=6)
    assert (positions(found), found.reason) == ([2], Reason.AUDIT)
    assert positions(due("abb", measured=[2], quiet=5)) == []
    assert positions(due("ab", measured=[2], quiet=0, nights=1)) == [2]
    assert due("abc", measured=[2], quiet=99).reason is Reason.NIGHTLY


def test_a_person_gets_the_newest_commit_whatever_is_known_of_it() -> None:
    assert positions(due("aab", measured=[3], scheduled=False)) == [3]
    found = due("aab", measured=[2, 3], scheduled=False, last=3)
    assert (positions(found), found.notes) == ([1, 3], ("1 of the 3 newest commits are measured already",))


@given(st.text("abc", min_size=1, max_size=12), st.data())
def test_what_a_schedule_leaves_out_has_the_files_of_something_that_is_measured(
    files: str, data: st.DataObject
) -> None:
    everywhere = range(1, len(files) + 1)
    measured = data.draw(st.sets(st.sampled_from(everywhere)))
    last = data.draw(st.integers(1, len(files)))
    found = due(files, measured=measured, last=last)
    there = measured | {place for place in positions(found) if place}
    assert not measured & set(positions(found))
    for place in list(everywhere)[-last:]:
        before = max((known for known in there if known <= place), default=None)
        assert before is not None
        assert before == place or files[before - 1] == files[place - 1]
