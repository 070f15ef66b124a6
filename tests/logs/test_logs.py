"""Lines for programs and for people; no secret in either."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from perfci import logs
from perfci.errors import SettingsError

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWl0ZSI6ImsifQ.c2lnbmF0dXJl"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where lines go; the loggers are as they were afterwards."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def as_json(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_an_object_with_time_level_event_and_where_it_happened(stream: io.StringIO) -> None:
    logs.configure(environ={"PERFCI_LOG": "json"}, stream=stream)
    with logs.context(session="nightly-1", suite="kernels"), logs.context(hardware="h200"):
        logs.event("stored", run=17, seconds=0.25, ok=True)
    logs.event("waiting", level=logging.WARNING, session=None)
    stored, waiting = as_json(stream)
    assert list(stored)[:3] == ["time", "level", "event"]
    assert stored.pop("time").endswith("Z")
    assert stored == {
        "level": "info",
        "event": "stored",
        "session": "nightly-1",
        "suite": "kernels",
        "hardware": "h200",
        "run": 17,
        "seconds": 0.25,
        "ok": True,
    }
    assert (waiting["level"], waiting["event"], "session" in waiting) == ("warning", "waiting", False)


def test_a_thread_does_not_tell_the_session_of_another(stream: io.StringIO) -> None:
    logs.configure(environ={"PERFCI_LOG": "json"}, stream=stream)
    with logs.context(session="nightly-1"):
        other = threading.Thread(target=logs.event, args=("elsewhere",))
        other.start()
        other.join()
    assert "session" not in as_json(stream)[0]


def test_fields_do_not_take_the_place_of_what_every_line_has(stream: io.StringIO) -> None:
    logs.configure(environ={"PERFCI_LOG": "json"}, stream=stream)
    logs.event("stored", time="never", event="another", nan=float("nan"), names=("a", "b"))
    [line] = as_json(stream)
    assert (line["time"] != "never", line["event"], line["nan"], line["names"]) == (True, "stored", "nan", ["a", "b"])


def test_without_the_variable_lines_are_for_people(stream: io.StringIO) -> None:
    logs.configure(environ={}, stream=stream)
    with logs.context(session="nightly-1"):
        logs.event("refused", file="a b.json")
    [line] = stream.getvalue().splitlines()
    assert line.endswith('Z info refused session=nightly-1 file="a b.json"')


@pytest.mark.parametrize("kind", ["json", "plain"])
def test_text_from_elsewhere_makes_no_line_of_its_own_and_moves_no_cursor(stream: io.StringIO, kind: str) -> None:
    logs.configure(environ={"PERFCI_LOG": kind}, stream=stream)
    logs.event("refused", reason='x\n2026 info stored "run"=1\x1b[2J\x9b2J\u202e\ud800')
    assert len(stream.getvalue().splitlines()) == 1
    assert stream.getvalue().isascii()
    assert "\x1b" not in stream.getvalue()


def test_a_command_that_prints_its_outcome_need_not_say_it_twice(stream: io.StringIO) -> None:
    logs.configure(environ={}, stream=stream, level=logging.WARNING)
    logs.event("stored")
    assert stream.getvalue() == ""
    logs.configure(environ={"PERFCI_LOG": "plain"}, stream=stream, level=logging.WARNING)
    logs.event("stored")
    assert len(stream.getvalue().splitlines()) == 1


def test_lines_of_libraries_and_tracebacks_are_objects_too(stream: io.StringIO) -> None:
    logs.configure(environ={"PERFCI_LOG": "json"}, stream=stream)
    try:
        raise ValueError("postgresql://perfci:s3cret@db/perfci")
    except ValueError:
        logging.getLogger("library.error").exception("it\nbroke")
    [line] = as_json(stream)
    assert (line["logger"], line["message"], line["level"]) == ("library.error", "it\nbroke", "error")
    assert "ValueError" in line["exception"]
    assert "s3cret" not in stream.getvalue()


@pytest.mark.parametrize("kind", ["json", "plain"])
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abcdef0123456789", "abcdef0123456789"),
        (f"refused the token {TOKEN}", TOKEN),
        (f"refused the token {TOKEN}", TOKEN.rsplit(".", maxsplit=1)[1]),
        ("https://hooks.slack.com/services/T000/B000/XXXXsecret", "XXXXsecret"),
        ("postgresql+psycopg://perfci:pa55word@db:5432/perfci is down", "pa55word"),
        ('the password is open "sesame"\n!', 'open "sesame"\n!'),
        ("the key is k3y-of-the-webhook", "k3y-of-the-webhook"),
    ],
)
def test_no_secret_is_in_a_line(stream: io.StringIO, kind: str, text: str, secret: str) -> None:
    for known in ('open "sesame"\n!', "k3y-of-the-webhook"):
        logs.conceal(known)
    logs.configure(environ={"PERFCI_LOG": kind}, stream=stream)
    with logs.context(where=text):
        logs.event("failed", reason=text, tried=[text])
    logging.getLogger("another").error("%s", text)
    assert len(stream.getvalue().splitlines()) >= 2
    assert secret not in stream.getvalue()
    assert json.dumps(secret)[1:-1] not in stream.getvalue()
    assert "***" in stream.getvalue()


def test_what_only_looks_like_an_address_stays(stream: io.StringIO) -> None:
    logs.configure(environ={"PERFCI_LOG": "json"}, stream=stream)
    told = "https://node-a:8090/v1/artifacts and git@example.org:a/b.git, bearer of news"
    logs.event("reached", url=told)
    assert as_json(stream)[0]["url"] == told


def test_another_format_is_refused() -> None:
    with pytest.raises(SettingsError, match="PERFCI_LOG=xml; use json or plain"):
        logs.configure(environ={"PERFCI_LOG": "xml"})


def test_it_needs_the_standard_library_alone() -> None:
    code = "import sys, perfci.logs; print([m for m in ('structlog', 'httpx', 'sqlalchemy') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
