"""An Airflow that begins no step any more is given up; one that is at work, or was stopped with its command, is not."""

from __future__ import annotations

import pytest

from perfci.airflow import TaskInstance
from perfci.embedded.standstill import LIMIT_S, Standstill
from perfci.errors import ServiceError

LOOK_S = 3.0


def a_task(state: str) -> TaskInstance:
    return TaskInstance("plan", -1, "", state, 1, None, None)


def watch(state: str, *, seconds: float, standstill: Standstill, changed: bool = False) -> None:
    until = standstill.asked_at + seconds
    while standstill.asked_at < until:
        standstill.check((a_task(state),), changed=changed, at=standstill.asked_at + LOOK_S)


@pytest.mark.parametrize("state", ["", "scheduled", "queued", "up_for_retry"])
def test_steps_that_wait_without_end_are_given_up_with_the_log_to_read(state: str) -> None:
    standstill = Standstill("logs/scheduler.log", asked_at=100.0)
    watch(state, seconds=LIMIT_S - LOOK_S, standstill=standstill)
    with pytest.raises(ServiceError, match=r"no step for 180 s; .*logs/scheduler\.log"):
        watch(state, seconds=3 * LOOK_S, standstill=standstill)


def test_a_long_step_is_waited_for() -> None:
    watch("running", seconds=20 * LIMIT_S, standstill=Standstill("log", asked_at=0.0))


def test_each_change_begins_the_wait_anew() -> None:
    standstill = Standstill("log", asked_at=0.0)
    for _ in range(4):
        watch("queued", seconds=LIMIT_S - 2 * LOOK_S, standstill=standstill)
        watch("queued", seconds=LOOK_S, standstill=standstill, changed=True)


def test_hours_in_which_the_command_was_stopped_do_not_count() -> None:
    standstill = Standstill("log", asked_at=0.0)
    for hour in range(1, 4):
        standstill.check((a_task("queued"),), changed=False, at=hour * 3600.0)
