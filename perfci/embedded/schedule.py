"""When the nightly runs, checked before Airflow is started: its own complaint comes late and names no setting."""

from __future__ import annotations

import zoneinfo

from perfci.config import Service
from perfci.errors import ServiceError

# Airflow knows it, croniter does not.
_QUARTERLY = "@quarterly"


def check(service: Service) -> None:
    """Raises ServiceError for a schedule that is no cron expression and a time zone that does not exist."""
    from croniter import croniter  # type: ignore[import-untyped]  # noqa: PLC0415  comes with Airflow

    try:
        if service.schedule != _QUARTERLY:
            croniter(service.schedule)
    except ValueError as error:
        raise ServiceError(
            f"service.schedule = {service.schedule!r} is no cron expression ({error})",
            next_step='write minute, hour, day, month and day of the week, e.g. "0 2 * * *"',
        ) from error
    try:
        zoneinfo.ZoneInfo(service.timezone)
    except (KeyError, ValueError, OSError) as error:
        raise ServiceError(
            f"service.timezone = {service.timezone!r} is no time zone", next_step='name one as in "Europe/Berlin"'
        ) from error
