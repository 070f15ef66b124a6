"""A suite's commands run as another user than the worker: they reach none of its files, and nothing of them stays."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfci.bench import subject
from perfci.errors import SettingsError
from tests.conftest import CI
from tests.runner.users import Box, a_box, rows

# An ordinary user cannot make users. In CI they fail instead of being left out.
pytestmark = pytest.mark.skipif(os.geteuid() != 0 and not CI, reason="makes users: needs root")


@pytest.fixture(
    scope="module", params=[pytest.param(True, marks=pytest.mark.faults, id="root"), pytest.param(False, id="worker")]
)
def box(request: pytest.FixtureRequest) -> Iterator[Box]:
    with a_box(worker_is_root=request.param) as made:
        yield made


def test_commands_run_as_the_subject_with_a_home_of_their_own(box: Box) -> None:
    sha = box.commit({"a": "1"})
    asked = "$(id -un) $(id -gn) $USER $(basename $HOME) $(touch $HOME/x && echo ok)"
    run = box.run(sha, run=f'python3 results.py "{asked}"')
    assert list(rows(run)) == [f"{box.subject} {box.subject} {box.subject} home ok", "lost"], run["said"]


def test_commands_cannot_read_or_write_what_is_the_workers(box: Box) -> None:
    sha = box.commit({"a": "2"})
    tries = (
        f"cat {box.state}/secrets/node.pem",
        "cat /proc/$(sed -n 's/^PPid://p' /proc/$PPID/status | tr -d '[:space:]')/environ",
        f"touch {box.state}/cache/x",
        f"touch {box.state}/worktrees/x",
        "touch ../x",
        f"touch {box.folder}/node/out/x",
        "true",  # so that the question itself is known to work
    )
    tried = "; ".join(f"({each}) >&2 && found=${{found}}{number}" for number, each in enumerate(tries))
    run = box.run(sha, run=f'found=; {tried}; python3 results.py "could:$found"')
    assert next(iter(rows(run))) == "could:6", run["said"]


def test_a_build_is_kept_and_belongs_to_the_worker(box: Box) -> None:
    """Also where the build left its files closed to others."""
    sha = box.commit({"a": "3"})
    build = "umask 077 && mkdir -p made/deep && id -un >made/deep/who && cp /bin/true made/set && chmod 6755 made/set"
    look = 'python3 results.py "$(cat made/deep/who) $(stat -c %a made/set) $(touch made/deep/mine && echo mine)"'
    for cached in (False, True):
        run = box.run(sha, build=build, run=look)
        assert next(iter(rows(run))).split()[::2] == [box.subject, "mine"], run["said"]
        assert ("build:" in run["said"]) is not cached, run["said"]
    kept = next((box.state / "cache" / "builds" / "subject").glob("*/source/made"))
    owner = (box.state / "secrets").stat().st_uid
    assert {path.stat().st_uid for path in (kept, *kept.rglob("*"))} == {owner}
    assert not (kept / "set").stat().st_mode & 0o6000
    assert not (kept / "deep" / "mine").exists()


def test_a_build_cannot_write_through_a_link_of_the_repository(box: Box) -> None:
    """The kept build has a folder where the checkout has a link to the worker's secrets."""
    (box.repository.folder / "link").symlink_to(box.state / "secrets")
    sha = box.commit({"a": "4"})
    build = "rm link && mkdir link && echo forged >link/node.pem"
    for _ in range(2):
        run = box.run(sha, build=build, run='python3 results.py "$(cat link/node.pem)"')
        assert next(iter(rows(run))) == "forged"
        assert (box.state / "secrets" / "node.pem").read_text() == "the node's own key"
    (box.repository.folder / "link").unlink()


@pytest.mark.parametrize(
    "plant",
    [
        'ln -s "{secret}" "$path"',
        'ln -s /etc/passwd "$path"',
        'mkfifo "$path"',
        'mkdir "$path"',
        'd=$(dirname "$path"); mv "$d" "$d-mine" || (rm -rf "$d"; ln -s /etc "$d")',
    ],
    ids=["link to a secret", "link to a readable file", "pipe", "folder", "another folder"],
)
@pytest.mark.parametrize("which", ["report", "results"])
def test_what_is_planted_instead_of_a_result_is_not_read(box: Box, plant: str, which: str) -> None:
    sha = box.commit({"a": "5"})
    path = {"report": "path=$PERFCI_REPORT", "results": 'path="${PYTEST_ADDOPTS##*--benchmark-json=}"'}[which]
    secret = box.state / "secrets" / "node.pem"
    run = box.run(sha, run=f"{path}; {plant.format(secret=secret)}")
    assert run["status"] == "error"
    assert rows(run) == {"lost": "error"}
    told = json.dumps(run)
    assert "the node's own key" not in told
    assert "daemon:x:" not in told


def test_nothing_of_a_command_is_left_when_its_time_is_over(box: Box) -> None:
    sha = box.commit({"a": "6"})
    run = box.run(sha, run="trap '' TERM; setsid sleep 600 & sleep 600", timeout_s=2.0)
    assert run["status"] == "timeout"
    assert box.processes() == []


@pytest.mark.parametrize("number", ["KILL", pytest.param("STOP", marks=pytest.mark.faults)])
def test_a_command_that_turns_on_its_guardian_leaves_nothing(box: Box, number: str) -> None:
    sha = box.commit({"a": "7"})
    guardians = "grep -lz -- --subject /proc/[0-9]*/cmdline 2>/dev/null | cut -d / -f 3"
    run = box.run(sha, run=f"setsid sleep 600 & kill -{number} $({guardians}) 2>/dev/null; sleep 600", timeout_s=2.0)
    assert run["status"] in ("timeout", "error")
    assert box.processes() == []


def test_not_even_what_has_thrown_its_environment_away(box: Box) -> None:
    """It would meet the next suite's processes, whose user it is."""
    sha = box.commit({"a": "7 env"})
    away = "env -i /bin/sh -c 'setsid sh -c \"(sleep 600 & sleep 600)\" & sleep 600' & sleep 0.5"
    guardians = "grep -lz -- --subject /proc/[0-9]*/cmdline 2>/dev/null | cut -d / -f 3"
    run = box.run(sha, run=f"{away}; kill -KILL $({guardians}) 2>/dev/null; sleep 600", timeout_s=10.0)
    assert run["status"] == "error"
    assert box.processes() == []


def test_a_killed_worker_takes_the_command_along_and_its_files_do_not_stand_in_the_way(box: Box) -> None:
    sha = box.commit({"a": "8"})
    process = box.start(sha, run="mkdir -m 0500 closed closed-2; touch began; sleep 600")
    until = time.monotonic() + 60
    while not list((box.state / "worktrees").glob("*/source/began")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.kill()
    process.communicate()
    until = time.monotonic() + 30
    while box.processes():
        assert time.monotonic() < until, "the command outlives its worker"
        time.sleep(0.05)
    run = box.run(sha, run="python3 results.py fine")
    assert next(iter(rows(run))) == "fine"
    assert [path.name for path in (box.state / "worktrees").iterdir() if path.name != ".lock"] == []


def test_what_one_commit_compiled_is_closed_to_the_next(box: Box) -> None:
    first, second = box.commit({"a": "9"}), box.commit({"a": "10"})
    box.run(first, run="mkdir -p $TRITON_CACHE_DIR && touch $TRITON_CACHE_DIR/kernel && python3 results.py x")
    own, others = "ls $TRITON_CACHE_DIR", "ls $(dirname $(dirname $TRITON_CACHE_DIR))/OTHER/triton"
    look = f'python3 results.py "$({own}; {others})."'
    assert next(iter(rows(box.run(second, run=look.replace("OTHER", first))))) == "."
    assert next(iter(rows(box.run(first, run=look.replace("OTHER", second))))) == "kernel."


def test_the_secret_was_never_touched(box: Box) -> None:
    secret: Path = box.state / "secrets" / "node.pem"
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("the node's own key", 0o600)


def test_a_user_that_is_not_there_or_is_root_is_refused() -> None:
    with pytest.raises(SettingsError, match="is no user here; make it"):
        subject.of("nobody-of-that-name")
    with pytest.raises(SettingsError, match="is root; name a user of its own"):
        subject.of("root")
