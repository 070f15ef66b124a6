"""Each alert and each night once a channel, on both databases, whatever breaks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from perfci.config import Channel
from perfci.model import AbsenceReason, AlertState, ChangeKind, NoticeState, Origin, RunStatus, Status
from perfci.notify import sending
from perfci.store import reads, tables, writes
from perfci.store.engine import connect
from perfci.store.rows import Absence
from tests.build import EPOCH, a_commit, a_measurement, a_run, an_artifact
from tests.nightly.place import wait_for
from tests.notify.nights import MORNING, NAMES, SESSION, alarm, store, tell
from tests.notify.receivers import Web
from tests.store.processes import at_once

LATER = MORNING + timedelta(minutes=11)


def hook(web: Web, name: str = "chat", kind: str = "webhook") -> Channel:
    return Channel(name, kind, url=web.url)


def bodies(web: Web) -> list[dict[str, Any]]:
    return [json.loads(each.body) for each in web.received]


def noted(engine: sa.Engine) -> dict[str, str]:
    with engine.connect() as connection:
        rows = connection.execute(sa.select(tables.notification)).all()
        assert all((row.alert_id is None) != (row.session_id is None) for row in rows)
        return {f"{row.channel} {row.key.split()[0]} {row.alert_id or ''}".strip(): row.state for row in rows}


def test_a_nights_alerts_are_one_message_and_told_once(engine: sa.Engine, web: Web) -> None:
    store(engine, positions=(1, 2, 3))
    alarm(engine)
    alarm(engine, position=3, names=["modular"], kind=ChangeKind.IMPROVEMENT)
    [first] = tell(engine, hook(web))
    assert (first["outcome"], len(first["alerts"]), first["night"], first["error"]) == ("sent", 4, False, "")
    [again] = tell(engine, hook(web), now=LATER)
    assert (again["outcome"], again["alerts"], again["unsure"]) == ("nothing new", [], [])
    [told] = bodies(web)
    assert told["title"] == "perfci: 3 regressions, 1 improvement"
    commits = [line for line in told["text"].splitlines() if "Change number" in line]
    assert commits == [f'kernels · {a_commit(n).sha[:9]} "Change number {n}"' for n in (2, 3)]
    assert {alert["series"]["implementation"] for alert in told["alerts"]} == {*NAMES}
    assert set(noted(engine).values()) == {NoticeState.SENT}


def test_every_channel_is_told_and_a_new_alert_makes_a_new_message(engine: sa.Engine, web: Web) -> None:
    store(engine)
    alarm(engine, names=["modular"])
    tell(engine, hook(web), hook(web, "team", "slack"))
    alarm(engine, names=["modular", "modular-pdl"])
    outcomes = tell(engine, hook(web), hook(web, "team", "slack"))
    assert [each["outcome"] for each in outcomes] == ["sent", "sent"]
    assert [len(each["alerts"]) for each in outcomes] == [1, 1]
    assert len(web.received) == 4


def test_what_asks_nobody_is_not_told(engine: sa.Engine, web: Web) -> None:
    store(engine)
    alarm(engine, names=["modular"], recovered=True)
    alarm(engine, names=["modular-pdl"], found=False)
    alarm(engine, names=["torch-graph"])
    triaged = reads.alerts(engine)[0]
    writes.triage(engine, triaged.id, state=AlertState.ACCEPTED, assignee="", note="")
    store(engine, names=["generated"], suite="year", origin=Origin.SYNTHETIC)
    alarm(engine, names=["generated"])
    store(engine, names=["old"], positions=(3,))
    alarm(engine, names=["old"], position=3, at=MORNING - timedelta(days=15))
    [outcome] = tell(engine, hook(web))
    assert (outcome["outcome"], web.received) == ("nothing new", [])


def test_a_night_that_lacks_something_says_so_once(engine: sa.Engine, web: Web) -> None:
    store(engine)
    absent = [
        Absence("kernels", "h200", AbsenceReason.NO_NODE, "no live node has it"),
        Absence("kernels", "b200", AbsenceReason.BUDGET, "60 of 60 minutes"),
        Absence("kernels", "cpu", AbsenceReason.UNAFFECTED, "nothing changed"),
    ]
    writes.record_absences(engine, SESSION, absent, planned=[], at=EPOCH)
    wrong = a_measurement("megakernel", status=Status.INCORRECT, reason="NaN")
    gone = a_measurement("modular", status=Status.MISSING)
    runs = [
        a_run([], commit=a_commit(3), status=RunStatus.BUILD_FAILED, reason="g++ said no", session=SESSION, index=7),
        a_run([wrong, gone], commit=a_commit(2), session=SESSION, index=8),
        a_run([wrong], commit=a_commit(2), session=SESSION, index=9),
    ]
    for run in runs:
        writes.ingest(engine, an_artifact(run), path="x")
    [first] = tell(engine, hook(web), problems=["detect: the database is locked"])
    [second] = tell(engine, hook(web))
    assert (first["outcome"], first["night"], first["alerts"], second["outcome"]) == ("sent", True, [], "nothing new")
    [told] = bodies(web)
    assert told["title"] == (
        "perfci: 1 incorrect output, 1 hardware missing, 1 job cut, 1 build failed, 1 benchmark without a result,"
        " 1 step failed"
    )
    for line in (
        "  kernels on h200: not measured, no live node: no live node has it\n",
        "  kernels on b200: not measured, the night's budget was spent: 60 of 60 minutes\n",
        f'  kernels on cpu-test-2c: {a_commit(3).sha[:9]} "Change number 3": build_failed: g++ said no\n',
        f'  kernels on cpu-test-2c: {a_commit(2).sha[:9]} "Change number 2": 1 benchmark incorrect, the first is ',
        "  perfci: detect: the database is locked\n",
    ):
        assert line in told["text"]
    assert "nothing changed" not in told["text"]
    assert [trouble["what"] for trouble in told["troubles"]] == [
        *("budget", "no_node", "build_failed", "incorrect", "missing")
    ]


def test_a_night_without_a_session_row_is_quiet_or_tells_its_problems(engine: sa.Engine, web: Web) -> None:
    [quiet] = tell(engine, hook(web))
    assert (quiet["outcome"], web.received) == ("nothing new", [])
    for _ in range(2):
        tell(engine, hook(web), problems=["plan: the repository cannot be reached"])
    [told] = bodies(web)
    assert (told["title"], told["problems"]) == (
        "perfci: 1 step failed",
        ["plan: the repository cannot be reached"],
    )


@pytest.mark.parametrize("status", [404, 429, 502, 307])
def test_what_a_channel_refuses_is_told_later(engine: sa.Engine, web: Web, status: int) -> None:
    store(engine)
    alarm(engine)
    web.status, web.answer = status, b"no_service\x1b[2J"
    web.headers = {"Location": web.url} if status < 400 else {}
    [failed] = tell(engine, hook(web))
    assert (failed["outcome"], len(failed["alerts"]), noted(engine)) == ("failed", 3, {})
    assert str(status) in failed["error"]
    assert "perfci notify send --session night-1" in failed["error"]
    assert "\x1b" not in failed["error"]
    assert len(web.received) == 1  # a redirect is not followed
    web.status, web.headers = 200, {}
    [sent] = tell(engine, hook(web))
    assert (sent["outcome"], len(web.received)) == ("sent", 2)


def test_a_channel_that_is_down_does_not_keep_the_others_and_is_told_when_it_is_back(
    engine: sa.Engine, web: Web
) -> None:
    store(engine)
    alarm(engine)
    down = Channel("down", "slack", url="http://127.0.0.1:9/services/s3cret")
    unset = Channel("unset", "slack", url="env:PERFCI_TEST_UNSET")
    first, second, third = tell(engine, down, unset, hook(web))
    assert [first["outcome"], second["outcome"], third["outcome"]] == ["failed", "failed", "sent"]
    assert "it cannot be reached" in first["error"]
    assert "s3cret" not in first["error"]
    assert second["error"] == "notify.unset.url names the variable PERFCI_TEST_UNSET, which is not set; set it"
    back = Channel("down", "slack", url=web.url)
    [told] = tell(engine, back, now=MORNING + timedelta(days=1))
    assert (told["outcome"], len(told["alerts"])) == ("sent", 3)


def test_a_short_outage_is_waited_out(engine: sa.Engine, web: Web) -> None:
    store(engine)
    alarm(engine)
    web.status = 503

    def recover() -> None:
        wait_for(lambda: len(web.received) == 1)
        web.status = 200

    thread = threading.Thread(target=recover)
    thread.start()
    [outcome] = tell(engine, hook(web), waits_s=(0.3, 0.3, 0.3))
    thread.join()
    assert outcome["outcome"] == "sent"


@pytest.mark.parametrize("drip_s", [0.0, 1.5])
def test_a_channel_that_does_not_answer_is_unsure_and_not_told_again(
    engine: sa.Engine, web: Web, drip_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "LIMIT_S", 0.4)
    store(engine)
    alarm(engine)
    web.drip_s = drip_s
    web.hold = None if drip_s else threading.Event()
    [outcome] = tell(engine, hook(web))
    assert outcome["outcome"] == "unsure"
    assert "look whether it arrived; if not: perfci notify send --session night-1 --unsure" in outcome["error"]
    [at_once_after] = tell(engine, hook(web))
    assert (at_once_after["outcome"], at_once_after["unsure"]) == ("nothing new", [])  # it may still be on its way
    [after] = tell(engine, hook(web), now=LATER)
    assert (after["outcome"], len(after["unsure"])) == ("nothing new", 3)
    assert after["unsure"][0].endswith("(maybe sent 2026-12-01 08:00 UTC)")
    assert len(web.received) == 1
    if web.hold:
        web.hold.set()
    web.hold, web.drip_s = None, 0.0
    [repeated] = tell(engine, hook(web), now=LATER, unsure_too=True)
    assert (repeated["outcome"], repeated["unsure"]) == ("sent", [])
    first, second = bodies(web)
    assert first["delivery"] == second["delivery"] == web.received[1].headers["Perfci-Delivery"]


def send_in_a_process(url: str, target: str) -> list[int]:
    engine = connect(url)
    try:
        [outcome] = tell(engine, Channel("chat", "webhook", url=target))
        return list(outcome["alerts"])
    finally:
        engine.dispose()


def test_four_notifiers_at_once_tell_each_alert_once(database_url: str, engine: sa.Engine, web: Web) -> None:
    store(engine, positions=(1, 2, 3))
    for position in (2, 3):
        alarm(engine, position=position)
    told = at_once(send_in_a_process, [(database_url, web.url)] * 4)
    assert sorted(number for each in told for number in each) == sorted(alert.id for alert in reads.alerts(engine))
    arrived = Counter(alert["id"] for body in bodies(web) for alert in body["alerts"])
    assert set(arrived.values()) == {1}
    assert len(arrived) == 6


SENDER = """
import sys
from tests.notify.test_send import send_in_a_process
send_in_a_process(*sys.argv[1:])
"""


def test_a_notifier_killed_while_it_sends_leaves_a_note_and_nothing_is_sent_twice(
    database_url: str, engine: sa.Engine, web: Web, repository: Path
) -> None:
    store(engine)
    alarm(engine)
    web.hold = threading.Event()
    environment = os.environ | {"PYTHONPATH": str(repository)}
    process = subprocess.Popen([sys.executable, "-c", SENDER, database_url, web.url], env=environment)
    wait_for(lambda: len(web.received) == 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    web.hold.set()
    assert set(noted(engine).values()) == {NoticeState.SENDING}
    [after] = tell(engine, hook(web), now=LATER)
    assert (after["outcome"], len(after["unsure"]), len(web.received)) == ("nothing new", 3, 1)


def test_a_dry_run_shows_the_message_and_changes_nothing(engine: sa.Engine, web: Web) -> None:
    store(engine)
    alarm(engine)
    [outcome] = tell(engine, hook(web), dry_run=True)
    assert outcome["outcome"] == "dry run"
    assert "REGRESSION" in outcome["text"]
    assert (noted(engine), web.received) == ({}, [])


def test_a_hundred_alerts_are_a_message_that_a_person_can_read(engine: sa.Engine, web: Web) -> None:
    names = [f"kernel-{number}" for number in range(20)]
    store(engine, names=names, positions=range(1, 14))
    for position in range(2, 14):
        alarm(engine, position=position, names=names)
    [outcome] = tell(engine, hook(web))
    assert len(outcome["alerts"]) == 240
    [told] = bodies(web)
    assert len(told["text"].splitlines()) < 160
    assert "  and 8 more\n" in told["text"]
    assert "and 2 commits more\n" in told["text"]
    assert len(told["alerts"]) == 240
    [after] = tell(engine, hook(web))
    assert after["outcome"] == "nothing new"
