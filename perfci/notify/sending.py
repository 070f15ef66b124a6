"""What is new, to every channel; each alert and each night once a channel.

Before a message goes out, the database notes that it is on its way; after it arrived, that it was sent. Killed in
between, nobody knows whether it arrived, and it is not sent again: it is told as unsure. The other way round, a crash
would repeat an alarm, and people stop reading what repeats itself; nothing is lost by silence, since the alert stays
open on the pages and on the command line. Where a message certainly did not arrive (no connection, a refusal), the
note is taken back, and the next night or `perfci notify send` tells it.
"""

from __future__ import annotations

import hashlib
import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine

from perfci import changes, logs
from perfci.config import Channel, Settings
from perfci.errors import SettingsError
from perfci.model import NoticeState
from perfci.notify import channel as channels
from perfci.notify import message as words
from perfci.notify.attempt import Answer, Delivery, within
from perfci.notify.message import Message
from perfci.store import notices
from perfci.store.notices import Notice, Subject, Trouble
from perfci.store.rows import AlertRow

LIMIT_S = 45.0  # of one attempt
WAITS_S = (2.0, 10.0)  # before further attempts where a channel could not be reached; the next night is the next one
# Longer than all attempts of a notifier that lives: what is on its way for longer belongs to one that was killed.
GONE = timedelta(minutes=10)
# An alert that no channel took for so long is not news.
NEWS = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class _News:
    """What could be told of a session, by the keys of its subjects."""

    session: str
    alerts: Mapping[str, AlertRow]
    night: Subject
    troubles: tuple[Trouble, ...]
    problems: tuple[str, ...]

    @property
    def subjects(self) -> tuple[Subject, ...]:
        of_alerts = tuple(Subject(key, alert_id=alert.id) for key, alert in self.alerts.items())
        return (*of_alerts, self.night) if self.troubles or self.problems else of_alerts

    def message(self, keys: frozenset[str]) -> Message:
        alerts = [alert for key, alert in self.alerts.items() if key in keys]
        if self.night.key not in keys:
            return words.of_night(self.session, alerts, ())
        return words.of_night(self.session, alerts, self.troubles, problems=self.problems)


def send(
    engine: Engine,
    settings: Settings,
    session: str,
    *,
    now: datetime,
    problems: Sequence[str] = (),
    dry_run: bool = False,
    unsure_too: bool = False,
    waits_s: Sequence[float] = WAITS_S,
) -> dict[str, Any]:
    """Tell every channel what it does not know: open alerts of any night, and what this one lacks, in one message.

    problems: what perfci itself could not do in it. dry_run: nothing is sent or noted; `text` says what would be.
    unsure_too: also what may have arrived. A channel that fails does not keep the others, and raises nothing.
    Returns {"session", "channels": [{"channel", "kind", "outcome", "alerts", "night", "unsure", "error"}]}; outcome
    is "sent", "nothing new", "failed", "unsure" or "dry run". Raises StoreError.
    """
    told: list[dict[str, Any]] = []
    if settings.channels:
        began, news = time.monotonic(), _news(engine, session, now=now, problems=problems)
        with logs.context(session=session):
            for channel in settings.channels.values():
                teller = _Teller(engine, channel, news, now=now, began=began, waits_s=waits_s)
                outcome = teller.dry_run() if dry_run else teller.tell(unsure_too=unsure_too)
                told.append(outcome)
                if not dry_run:
                    _log(outcome)
    return {"session": session, "channels": told}


def test(channel: Channel, *, now: datetime) -> Answer:
    """Tell the channel that it works. Raises SettingsError."""
    message = words.of_test(channel.name)
    delivery = channels.delivery_of(channel.name, [f"test {now.isoformat()}"])
    return within(LIMIT_S, channels.opened(channel, message, delivery=delivery, at=now))


def _news(engine: Engine, session: str, *, now: datetime, problems: Sequence[str]) -> _News:
    session_id = notices.session_id(engine, session)
    alerts = [alert for alert in notices.open_alerts(engine, since=now - NEWS) if changes.stands(alert)]
    return _News(
        session=session,
        alerts={_key(alert): alert for alert in alerts},
        night=Subject(f"night {session}", session_id=session_id),
        troubles=() if session_id is None else notices.troubles(engine, session_id),
        problems=tuple(problems),
    )


def _key(alert: AlertRow) -> str:
    """Not by its number, which another database gives to another alert."""
    s = alert.series
    named = "\n".join((s.suite, s.hardware, s.workload, s.implementation, s.metric, alert.commit.sha))
    return f"alert {hashlib.sha256(named.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"


@dataclass(frozen=True)
class _Teller:
    """One channel and what there is to tell."""

    engine: Engine
    channel: Channel
    news: _News
    now: datetime
    began: float  # the same moment on the monotonic clock: channels before this one may have taken minutes
    waits_s: Sequence[float]

    @property
    def at(self) -> datetime:
        return self.now + timedelta(seconds=time.monotonic() - self.began)

    def tell(self, *, unsure_too: bool) -> dict[str, Any]:
        if unsure_too:
            keys = [subject.key for subject in self.news.subjects]
            notices.forget(self.engine, self.channel.name, keys, before=self.at - GONE)
        unsure = self._unsure(self._known())
        for wait_s in (0.0, *self.waits_s):
            time.sleep(wait_s)
            outcome, again = self._attempt(unsure)
            if not again:
                break
        return outcome

    def _attempt(self, unsure: Sequence[str]) -> tuple[dict[str, Any], bool]:
        """What came of it, and whether to try again in a moment. While it waits, a notifier has nothing on its way."""
        name = self.channel.name
        ours = notices.claim(self.engine, name, self.news.subjects, at=self.at)
        if not ours:
            return self._outcome("nothing new", ours, unsure=unsure), False
        try:
            answer = self._answer(ours)
        except SettingsError as error:
            notices.forget(self.engine, name, ours)
            return self._outcome("failed", ours, unsure=unsure, error=str(error)), False
        if answer.delivery is Delivery.DELIVERED:
            notices.sent(self.engine, name, ours, at=self.at)
            return self._outcome("sent", ours, unsure=unsure, error=answer.text), False
        send_again = f"perfci notify send --session {shlex.quote(self.news.session)}"
        if answer.delivery is Delivery.REFUSED:
            notices.forget(self.engine, name, ours)
            problem = f"{answer.text}; mend [notify.{name}] or wait, then: {send_again}"
            return self._outcome("failed", ours, unsure=unsure, error=problem), answer.again
        problem = f"{answer.text}; look whether it arrived; if not: {send_again} --unsure"
        return self._outcome("unsure", ours, unsure=unsure, error=problem), False

    def _answer(self, keys: frozenset[str]) -> Answer:
        delivery = channels.delivery_of(self.channel.name, keys)
        return within(LIMIT_S, channels.opened(self.channel, self.news.message(keys), delivery=delivery, at=self.at))

    def dry_run(self) -> dict[str, Any]:
        known = self._known()
        new = frozenset(subject.key for subject in self.news.subjects) - known.keys()
        text = self.news.message(new).text if new else ""
        return self._outcome("dry run", new, unsure=self._unsure(known)) | {"text": text}

    def _known(self) -> Mapping[str, Notice]:
        return notices.told(self.engine, self.channel.name, [subject.key for subject in self.news.subjects])

    def _unsure(self, known: Mapping[str, Notice]) -> list[str]:
        """In words: what a notifier that was killed had on its way."""
        lost = {
            key: notice
            for key, notice in known.items()
            if notice.state is NoticeState.SENDING and notice.updated_at < self.at - GONE
        }
        names = {key: f"alert {alert.id}" for key, alert in self.news.alerts.items()} | {
            self.news.night.key: self.news.night.key
        }
        return [f"{names[key]} (maybe sent {notice.updated_at:%Y-%m-%d %H:%M} UTC)" for key, notice in lost.items()]

    def _outcome(self, outcome: str, keys: frozenset[str], *, unsure: Sequence[str], error: str = "") -> dict[str, Any]:
        return {
            "channel": self.channel.name,
            "kind": self.channel.kind,
            "outcome": outcome,
            "alerts": sorted(alert.id for key, alert in self.news.alerts.items() if key in keys),
            "night": self.news.night.key in keys,
            "unsure": list(unsure),
            "error": logs.without_secrets(error),
        }


def _log(outcome: Mapping[str, Any]) -> None:
    level = logging.WARNING if outcome["outcome"] in ("failed", "unsure") else logging.INFO
    logs.event(
        "notified",
        level=level,
        channel=outcome["channel"],
        outcome=outcome["outcome"],
        alerts=len(outcome["alerts"]),
        reason=outcome["error"] or None,
    )
