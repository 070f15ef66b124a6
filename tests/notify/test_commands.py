"""`perfci notify` as a person calls it: what it prints, and how it exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci.store.engine import connect
from tests.notify.nights import SESSION, alarm, store
from tests.notify.receivers import Web

CHANNELS = """
[notify.chat]
kind = "slack"
url = "env:CHAT_URL"

[notify.tracker]
kind = "webhook"
url = "env:TRACKER_URL"
key = "k3y-of-the-tracker"
"""


@dataclass(frozen=True)
class Desk:
    folder: Path
    engine: sa.Engine

    def perfci(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "perfci.cli", *arguments],
            cwd=self.folder,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])} | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def desk(tmp_path: Path, new_sqlite: Callable[[Path], str]) -> Desk:
    (tmp_path / ".perfci").mkdir()
    (tmp_path / "perfci.toml").write_text(CHANNELS)
    engine = connect(new_sqlite(tmp_path / ".perfci" / "perfci.db"))
    store(engine)
    alarm(engine, at=datetime.now(UTC))
    return Desk(tmp_path, engine)


def test_what_is_new_is_sent_once_and_a_channel_that_is_down_is_an_exit_code(desk: Desk, web: Web) -> None:
    urls = {"TRACKER_URL": web.url}
    shown = desk.perfci("notify", "send", "--dry-run", **urls)
    assert (shown.returncode, shown.stderr, web.received) == (0, "", [])
    assert shown.stdout.startswith("chat: would send 3 alerts\n  | perfci: 3 regressions\n")

    first = desk.perfci("notify", "send", **urls)
    assert (first.returncode, first.stdout) == (2, "chat: not sent: 3 alerts\ntracker: sent 3 alerts\n")
    assert first.stderr == (
        "perfci: channel chat: notify.chat.url names the variable CHAT_URL, which is not set; set it\n"
    )

    urls["CHAT_URL"] = web.url
    second = desk.perfci("notify", "send", "--session", SESSION, "--json", **urls, PERFCI_LOG="json")
    assert second.returncode == 0
    told = {each["channel"]: each["outcome"] for each in json.loads(second.stdout)["channels"]}
    assert told == {"chat": "sent", "tracker": "nothing new"}
    logged = [json.loads(line) for line in second.stderr.splitlines()]
    assert [(line["event"], line["session"], line["channel"]) for line in logged] == [
        ("notified", SESSION, "chat"),
        ("notified", SESSION, "tracker"),
    ]
    assert len(web.received) == 2
    everything = "".join((first.stdout, first.stderr, second.stdout, second.stderr))
    assert "s3cret-path" not in everything
    assert "k3y-of-the-tracker" not in everything


def test_a_test_message_says_which_channel_works(desk: Desk, web: Web) -> None:
    both = desk.perfci("notify", "test", CHAT_URL=web.url, TRACKER_URL="http://127.0.0.1:9/s3cret")
    assert (both.returncode, both.stdout) == (2, "chat: sent a test message\n")
    assert both.stderr.startswith("perfci: channel tracker: it cannot be reached (")
    assert both.stderr.endswith("; mend [notify.tracker] and try again\n")
    one = desk.perfci("notify", "test", "chat", CHAT_URL=web.url)
    assert (one.returncode, one.stdout, one.stderr) == (0, "chat: sent a test message\n", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("test", "chatt"), "perfci: no channel named 'chatt'; known: chat, tracker\n"),
        (("send", "--session", "night-9"), "perfci: no night named 'night-9' is in the database; take a name from"),
    ],
)
def test_a_name_that_nobody_knows_is_an_error(desk: Desk, arguments: tuple[str, ...], told: str) -> None:
    done = desk.perfci("notify", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(told)


def test_without_a_channel_sending_is_nothing_and_testing_an_error(desk: Desk) -> None:
    (desk.folder / "perfci.toml").write_text("")
    sent, tested = desk.perfci("notify", "send"), desk.perfci("notify", "test")
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, "perfci.toml names no channel\n", "")
    assert (tested.returncode, tested.stderr) == (
        2,
        "perfci: perfci.toml names no channel; add a [notify.NAME]; see docs/watching.md\n",
    )
