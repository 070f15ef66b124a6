"""What is stored, as JSON that other programs read. GET alone; the names are those of the command line's JSON.

The functions are synchronous: Starlette runs them in threads, so that a slow database holds up nobody else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from perfci import metrics, report
from perfci.artifact import plain
from perfci.changes import stands
from perfci.config import Settings
from perfci.results import newest
from perfci.serve.access import Access
from perfci.serve.refusals import Refusal
from perfci.store import reads
from perfci.store.rows import Point, SeriesRow


@dataclass(frozen=True, slots=True)
class Reading:
    settings: Settings
    engine: Engine
    access: Access
    now: Callable[[], datetime]

    def results(self, request: Request) -> Response:
        """The newest result of every series, as `perfci results --json` has them."""
        self.access.check_reader(request)
        suite, hardware = _filter(request, "suite"), _filter(request, "hardware")
        rows = [row for row in newest(self.engine) if suite in (None, row.suite) and hardware in (None, row.hardware)]
        return JSONResponse([report.fields(row) for row in rows])

    def series(self, request: Request) -> Response:
        self.access.check_reader(request)
        rows = reads.all_series(self.engine, suite=_filter(request, "suite"), hardware=_filter(request, "hardware"))
        return JSONResponse([_series(row) for row in rows])

    def points(self, request: Request) -> Response:
        """A series' history along the branch; `last`: the newest so many alone."""
        self.access.check_reader(request)
        number = request.path_params["id"]
        points = reads.history(self.engine, number) if number < 2**63 else ()
        if not points and number not in {row.id for row in reads.all_series(self.engine)}:
            raise Refusal(404, f"no series has the number {number}", next_step="take one from /v1/series")
        last = _last(request)
        return JSONResponse([_point(point) for point in (points if last is None else points[-last:])])

    def alerts(self, request: Request) -> Response:
        """Open ones that later data did not take back; `all=1`: every one."""
        self.access.check_reader(request)
        everything = _filter(request, "all") == "1"
        rows = reads.alerts(self.engine, open_only=not everything)
        return JSONResponse([plain(alert) for alert in rows if everything or stands(alert)])

    def session(self, request: Request) -> Response:
        """What a night measured."""
        self.access.check_reader(request)
        name = request.path_params["name"]
        found = reads.session_points(self.engine, name) if name.isprintable() else ()
        if not found:
            raise Refusal(404, f"no session {name[:80]!r} has a result", next_step="name one that has")
        return JSONResponse({"session": name, "points": [_series(row) | _point(point) for row, point in found]})

    def metrics(self, request: Request) -> Response:
        """For Prometheus."""
        self.access.check_reader(request)
        return Response(metrics.text(self.engine, self.settings, now=self.now()), media_type=metrics.CONTENT_TYPE)


def _series(row: SeriesRow) -> dict[str, Any]:
    told = {"unit": row.unit, "direction": row.direction.value, "synthetic": row.synthetic}
    return {"series": row.id, **asdict(row.key), **told}


def _point(point: Point) -> dict[str, Any]:
    shape = plain(point)
    assert isinstance(shape, dict)
    number = shape.pop("series_id")
    return {"series": number, **shape}


def _filter(request: Request, name: str) -> str | None:
    text = request.query_params.get(name, "")
    if not text.isprintable():
        raise Refusal(400, f"{name} is {text[:40]!r}", next_step="use a name that can be printed")
    return text or None


def _last(request: Request) -> int | None:
    text = request.query_params.get("last", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < len(text) <= 9 and int(text)):
        raise Refusal(400, f"last is {text[:40]!r}", next_step="use a number, 1 or more")
    return int(text)
