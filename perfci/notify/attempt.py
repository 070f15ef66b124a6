"""One attempt to tell a channel, within a time limit: it arrived, certainly did not, or nobody can say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Delivery(StrEnum):
    """UNSURE: it was on its way when the connection broke or the time was over. It may have arrived."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Answer:
    """again: what stood in the way may be gone in a moment."""

    delivery: Delivery
    text: str = ""
    again: bool = False


class Abandoned(Exception):
    """Nobody waits for this attempt any longer, and it has sent nothing: it must not begin."""


class Attempt:
    """The moment from which on a message may have arrived. Before it, giving up is safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._abandoned = False

    def begin(self) -> None:
        """Called right before the message itself goes out. Raises Abandoned."""
        with self._lock:
            if self._abandoned:
                raise Abandoned
            self._begun = True

    def abandon(self) -> bool:
        """Whether the message may be on its way already."""
        with self._lock:
            self._abandoned = True
            return self._begun

    @property
    def begun(self) -> bool:
        with self._lock:
            return self._begun


def within(limit_s: float, work: Callable[[Attempt], Answer]) -> Answer:
    """What `work` says, or that it took too long.

    It has a thread of its own: a name server or a peer that sends a byte now and then outlasts every limit of a single
    read, and the night must end. A thread that hangs does not keep the process.
    """
    attempt = Attempt()
    answers: list[Answer] = []
    done = threading.Event()

    def run() -> None:
        try:
            answers.append(work(attempt))
        except Abandoned:
            pass
        finally:
            done.set()

    threading.Thread(target=run, name="perfci-notify", daemon=True).start()
    over = not done.wait(limit_s)
    begun = attempt.abandon()
    if answers:
        return answers[0]
    text = f"no answer within {limit_s:g} s" if over else "it failed unexpectedly; see the lines above"
    return Answer(Delivery.UNSURE, text) if begun else Answer(Delivery.REFUSED, text, again=over)
