"""What a channel reads: text of repositories is shown, never obeyed."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.model import AlertState, ChangeKind, Commit, RunStatus, SeriesKey, Status
from perfci.notify import email, message, slack, webhook
from perfci.notify.message import Message
from perfci.store.notices import Trouble
from perfci.store.rows import AlertRow
from tests.build import EPOCH, a_commit

EVIL = "<!channel> <@U1> *b* _i_ `c` & <https://evil|click>\r\nBcc: all@example.org\r\n\r\n\x1b[2J\u202egnp\x00 :tada:"
GOLDEN = """\
perfci: 1 regression, 1 improvement, 1 build failed

kernels · {second} "Change number 2"
  REGRESSION #1: decode/tiny / modular on h200: -9.1 % (-10.7 % to -7.4 %)
  IMPROVEMENT #2: decode/tiny / modular, throughput on h200: +10.0 % (+8.0 % to +12.0 %)

What this night lacks:
  kernels on h200: {third} "Change number 3": build_failed: g++: no such file

All of the night: perfci report --session nightly-1
To answer: perfci triage NUMBER --state confirmed|accepted|fixed|invalid
"""


def an_alert(
    number: int = 1,
    *,
    commit: Commit | None = None,
    metric: str = "latency",
    kind: ChangeKind = ChangeKind.REGRESSION,
    name: str = "modular",
    ratio: float = 1.1,
) -> AlertRow:
    return AlertRow(
        id=number,
        series=SeriesKey("kernels", "decode/tiny", name, metric, "h200"),
        series_id=number,
        commit=commit or a_commit(2),
        kind=kind,
        ratio=ratio,
        low=ratio - 0.02,
        high=ratio + 0.02,
        state=AlertState.NEW,
        assignee="",
        note="",
        created_at=EPOCH,
        updated_at=EPOCH,
    )


def evil_night(text: str = EVIL) -> Message:
    alert = an_alert(commit=dataclasses.replace(a_commit(2), subject=text), name=text)
    trouble = Trouble(RunStatus.ERROR, text, text, "ab" * 20, text, 2, text)
    return message.of_night(text, [alert], [trouble], problems=[text])


def test_a_message_as_people_read_it() -> None:
    alerts = [an_alert(2, metric="throughput", kind=ChangeKind.IMPROVEMENT), an_alert(1)]
    broken = Trouble(
        RunStatus.BUILD_FAILED, "kernels", "h200", a_commit(3).sha, "Change number 3", 3, "g++: no such file"
    )
    night = message.of_night("nightly-1", alerts, [broken])
    assert night.text == GOLDEN.format(second=a_commit(2).sha[:9], third=a_commit(3).sha[:9])


def test_the_greatest_regression_comes_first_and_a_commit_stands_once() -> None:
    alerts = [
        an_alert(1, kind=ChangeKind.IMPROVEMENT, ratio=0.5),
        an_alert(2, ratio=1.02, commit=a_commit(3)),
        an_alert(3, ratio=1.5),
        an_alert(4, ratio=1.1),
    ]
    night = message.of_night("nightly-1", alerts, [])
    assert [group.commit for group in night.groups] == [a_commit(2).sha, a_commit(3).sha]
    assert [line.split(":")[0] for line in night.groups[0].lines] == [
        "REGRESSION #3",
        "REGRESSION #4",
        "IMPROVEMENT #1",
    ]


def test_a_long_list_of_troubles_is_counted() -> None:
    troubles = [Trouble(Status.MISSING, "kernels", f"h{n}", "ab" * 20, "s", 1, "x") for n in range(40)]
    night = message.of_night("nightly-1", [], troubles)
    assert night.title == "perfci: 40 benchmarks without a result"
    assert night.trouble_lines[-1] == "and 28 more"
    assert len(night.trouble_lines) == 13


@given(st.text(max_size=400))
def test_a_line_is_one_line_that_can_be_printed(text: str) -> None:
    shown = message.line(text, 50)
    assert len(shown) <= 50
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1


def test_slack_interprets_nothing_of_a_repository() -> None:
    told = json.loads(slack.body(evil_night()))
    texts = [block["text"] for block in told["blocks"]]
    assert {text["type"] for text in texts} == {"plain_text"}
    assert {text["emoji"] for text in texts} == {False}
    assert (told["mrkdwn"], told["link_names"], told["unfurl_links"]) == (False, False, False)
    for shown in (told["text"], *(text["text"] for text in texts)):
        assert not {"<", ">", "\x1b", "\u202e", "\r"} & set(shown)
    assert "&lt;!channel&gt;" in texts[1]["text"]
    assert "&amp;" in texts[1]["text"]


@given(st.text(alphabet="<&>ab\n", max_size=3000))
def test_slack_gets_no_more_than_it_takes_and_no_half_escape(text: str) -> None:
    alerts = [
        an_alert(n, commit=dataclasses.replace(a_commit(n), subject=text), name=text + str(n)) for n in range(1, 30)
    ]
    told = json.loads(slack.body(message.of_night("nightly-1", alerts, [], problems=[text] * 30)))
    assert len(told["blocks"]) <= 50
    for block in told["blocks"]:
        shown = block["text"]["text"]
        assert 0 < len(shown) <= (150 if block["type"] == "header" else 3000)
        for escape in ("&amp;", "&lt;", "&gt;"):
            shown = shown.replace(escape, "")
        assert not {"<", ">", "&"} & set(shown)


def test_a_subject_adds_no_header_to_a_letter() -> None:
    made = email.letter(
        evil_night(), sender="perfci@example.org", to=("a@example.org", "b@example.org"), delivery="d1", at=EPOCH
    )
    content = made.as_bytes()
    headers = content.split(b"\r\n\r\n")[0].decode("ascii")
    names = [line.split(":")[0] for line in headers.split("\r\n")]
    assert names[:6] == ["Subject", "From", "To", "Date", "Message-ID", "Auto-Submitted"]
    assert sorted(names[6:]) == ["Content-Transfer-Encoding", "Content-Type", "MIME-Version"]
    assert content.isascii()
    assert made["To"] == "a@example.org, b@example.org"
    assert made["Message-ID"] == "<d1@perfci.invalid>"
    assert "Bcc: all@example.org" in made.get_content()
    assert not any(line.startswith("Bcc") for line in made.get_content().splitlines())


@pytest.mark.parametrize(
    "address",
    ["", "a", "a@b@c", "a@example.org\nBcc: x@example.org", "A <a@example.org>", "a b@example.org", "a@é.org"],
)
def test_what_is_no_plain_address_is_none(address: str) -> None:
    assert not email.is_address(address)
    assert email.is_address("kernel.team+night@example-host.org")


def test_a_webhook_is_signed_with_its_time() -> None:
    content = webhook.body(evil_night(), delivery="d1")
    at = datetime(2026, 12, 1, 6, tzinfo=UTC)
    told = webhook.headers(content, delivery="d1", key="k3y", at=at)
    moment = told["Perfci-Signature"].removeprefix("t=").partition(",")[0]
    wanted = hmac.new(b"k3y", f"{moment}.".encode() + content, hashlib.sha256).hexdigest()
    assert told["Perfci-Signature"] == f"t={int(at.timestamp())},v1={wanted}"
    assert told["Perfci-Delivery"] == "d1"
    assert "Perfci-Signature" not in webhook.headers(content, delivery="d1", key="", at=at)


def test_a_webhooks_body_has_the_facts_in_base_units() -> None:
    alerts = [an_alert(n) for n in range(1, 1003)]
    told: dict[str, Any] = json.loads(webhook.body(message.of_night("nightly-1", alerts, []), delivery="d1"))
    assert (len(told["alerts"]), told["alerts_left"], told["version"]) == (1000, 2, 1)
    first = told["alerts"][0]
    assert (first["ratio"], first["kind"], first["series"]["hardware"]) == (1.1, "regression", "h200")
    assert (first["commit"]["sha"], first["created_at"]) == (a_commit(2).sha, "2026-12-01T02:00:00+00:00")
