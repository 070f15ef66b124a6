"""The steps of a night that run on a node, as the DAG calls them: `measure`'s, with the hand-over around them.

A job that tells no server hands its results over in the state folder; one that does gets its sources from there and
delivers what it measured. What another node has delivered of the job is not measured again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from perfci import config, handover
from perfci import measure as steps
from perfci.bench import devices
from perfci.config import Settings
from perfci.handover import Parcel, Refused
from perfci.handover.deliveries import deliver_parcel
from perfci.measure import Echo


def build(config_path: str, job: Mapping[str, Any], *, echo: Echo = print) -> dict[str, Any]:
    """Prepare environment and build, see `measure.build`. Raises Refused where nothing of the job would be taken."""
    settings = _prepared(config_path)
    if "server" in job:
        handover.received(job, echo=echo)
        job = _fetched(settings, job, echo)
    with _devices(settings, job, echo):
        return steps.build(config_path, job, echo=echo)


def measure(config_path: str, job: Mapping[str, Any], *, echo: Echo = print) -> dict[str, Any]:
    """Measure what is left of a job and hand it over. Returns {"suite", "sha", "session", "results": names}.

    May be called again after it was killed: what was measured here is delivered, what was delivered is not measured
    twice. Raises DeviceError, SourceError, SuiteError, Refused, and Unreachable, after which results wait here.
    """
    settings = _prepared(config_path)
    told = {key: job[key] for key in ("suite", "sha", "session")}
    if "server" not in job:
        with _devices(settings, job, echo):
            paths = steps.measure(config_path, job, echo=echo)
        return told | {"results": [Path(path).name for path in paths]}
    with handover.parcel(settings.outgoing, job) as parcel:
        left = _left(job, parcel, _received(job, parcel, echo), echo)
        if left:
            fetched = _fetched(settings, job, echo)
            with _devices(settings, job, echo):
                for first, runs in left:
                    part = {**fetched, "first_index": first, "runs": runs}
                    steps.measure(config_path, part, out=parcel.folder, echo=echo)
        done = deliver_parcel(parcel, parcel.results(), outgoing=settings.outgoing, echo=echo)
    return told | {"results": [path.name for path in done]}


def _received(job: Mapping[str, Any], parcel: Parcel, echo: Echo) -> Mapping[int, str]:
    """What the server has of the job, if it answers. What waits here of a job that it refuses is set aside."""
    try:
        return handover.received(job, echo=echo) or {}
    except Refused as error:
        for path in parcel.results() if error.told else ():
            echo(f"{error}; the result is kept at {parcel.refuse(path, str(error))}")
        raise


def _left(job: Mapping[str, Any], parcel: Parcel, known: Mapping[int, str], echo: Echo) -> tuple[tuple[int, int], ...]:
    """(first, how many) of each unbroken stretch of processes without a result."""
    asked = range(int(job["first_index"]), int(job["first_index"]) + int(job["runs"]))
    here = {index for index in asked if index not in known and parcel.of_index(index)}
    if before := known.keys() & set(asked):
        echo(f"{len(before)} of {len(asked)} results were delivered before")
    if here:
        echo(f"{len(here)} of {len(asked)} results are here already")
    return tuple(_stretches(index for index in asked if index not in known and index not in here))


def _stretches(indexes: Iterable[int]) -> Iterator[tuple[int, int]]:
    for _, group in groupby(enumerate(indexes), key=lambda pair: pair[1] - pair[0]):
        stretch = [index for _, index in group]
        yield stretch[0], len(stretch)


def _prepared(config_path: str) -> Settings:
    settings = config.load(Path(config_path))
    steps.prepare(settings)
    return settings


def _fetched(settings: Settings, job: Mapping[str, Any], echo: Echo) -> dict[str, Any]:
    """The job with its sources as its repository."""
    return {**job, "repository": str(handover.fetch(job, settings.cache, echo=echo))}


@contextmanager
def _devices(settings: Settings, job: Mapping[str, Any], echo: Echo) -> Iterator[None]:
    """The job's devices; those behind a `launch` are another machine's, and its scheduler gives them."""
    rule = settings.rule(str(job.get("hardware", "")))
    if rule is not None and rule.launch != "{cmd}":
        yield
        return
    with devices.claimed(int(job.get("devices", 1)), settings.state / "devices", echo=echo):
        yield
