"""What writes. One transaction a call: whole or not at all; a call may be repeated and run beside itself.

Rows that several writers may make at once are inserted with ON CONFLICT DO NOTHING and then looked up, always in the
same order of tables and of keys, so that two writers never wait for each other in a circle.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from sys import byteorder
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from perfci.artifact import Artifact
from perfci.errors import ArtifactError, StoreError
from perfci.model import AbsenceReason, AlertState, Commit, Environment, Measurement, Origin, Run
from perfci.stats.summary import summarize
from perfci.store import progress, tables
from perfci.store.engine import writing
from perfci.store.rows import Absence, Ingested, NewAlert

Row = dict[str, Any]


def ingest(
    engine: sa.Engine, artifact: Artifact, *, path: str, name: str = "", origin: Origin | None = None
) -> Ingested:
    """Store a checked result file. The same bytes a second time change nothing.

    path: where the file is kept, from the state folder. name: what messages call it, by default its path. origin:
    RECORDED for results that were measured elsewhere and delivered.
    Raises ArtifactError for a file that contradicts what is stored: generated numbers for a suite of real ones or the
    reverse, another unit or direction for a known series, times of another device under the name of a known hardware.
    Raises StoreError.
    """
    name = name or path
    run = dataclasses.replace(artifact.run, origin=_origin(artifact.run.origin, origin, name))
    with writing(engine) as connection:
        if (known := _run_id(connection, artifact.sha256)) is not None:
            return Ingested(known, created=False)
        suite_id = _suite(connection, run.suite, synthetic=run.origin is Origin.SYNTHETIC, path=name)
        row = _run_row(connection, run, suite_id, path=name)
        identity = {"artifact_sha256": artifact.sha256, "path": path}
        run_id = connection.scalar(_insert(connection, tables.run).values(identity | row).returning(tables.run.c.id))
        if run_id is None:
            # Another process stored the same bytes since we looked.
            return Ingested(_found(_run_id(connection, artifact.sha256)), created=False)
        _controls(connection, run, run_id)
        _measurements(connection, run, run_id, series_ids=_series(connection, run, row, path=name))
        return Ingested(run_id, created=True)


def sync_branch(engine: sa.Engine, suite: str, commits: Sequence[Commit]) -> None:
    """Tell the positions on the suite's tracked branch, as the control plane read them in the repository.

    `commits` is the branch or its newer end, each with a position. From its first position on, a stored commit that is
    not among them is off the branch (it was rewritten). Raises ValueError for a commit without a position.
    """
    if any(commit.position is None for commit in commits):
        raise ValueError("a commit of a branch has a position")
    if not commits:
        return
    told = {commit.sha: commit for commit in commits}
    c = tables.commit.c
    with writing(engine) as connection:
        suite_id = _suite_of_any_origin(connection, suite)
        # One at a time: two views of the branch must not mix.
        connection.execute(
            sa.select(tables.suite.c.id).where(tables.suite.c.id == suite_id).with_for_update(key_share=True)
        )
        first = min(_found(commit.position) for commit in commits)
        stale = [
            row.id
            for row in connection.execute(sa.select(c.id, c.sha).where(c.suite_id == suite_id, c.position >= first))
            if row.sha not in told
        ]
        if stale:
            gone = sa.update(tables.commit).where(c.id == sa.bindparam("stale_id"))
            connection.execute(gone.values(position=None, on_branch=False), [{"stale_id": id_} for id_ in stale])
        insert = _upsert(connection, tables.commit)
        facts = ("parents", "position", "on_branch", "committed_at", "subject")
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=["suite_id", "sha"], set_={name: insert.excluded[name] for name in facts}
            ),
            [_commit_row(told[sha], suite_id, on_branch=True) for sha in sorted(told)],
        )


def record_absences(
    engine: sa.Engine,
    session: str,
    absences: Sequence[Absence],
    *,
    planned: Collection[tuple[str, str]],
    at: datetime,
    reasons: Collection[AbsenceReason] = tuple(AbsenceReason),
) -> None:
    """Tell what a night does not measure. `planned`, (suite, hardware): what the session was told of these before, for
    one of the reasons, is forgotten; absences are for these reasons alone. Raises StoreError."""
    told = sorted(absences, key=lambda each: (each.suite, each.hardware, each.reason))
    with writing(engine) as connection:
        # A name that nobody has told anything of gets no row.
        suite_ids = {name: _suite_of_any_origin(connection, name) for name in sorted({each.suite for each in told})}
        session_id = _session_for_absences(connection, session, make=bool(told))
        for suite, hardware in sorted(planned):
            of_suite = sa.select(tables.suite.c.id).where(tables.suite.c.name == suite).scalar_subquery()
            gone = sa.delete(tables.absence).filter_by(session_id=session_id, hardware=hardware)
            a = tables.absence.c
            connection.execute(gone.where(a.suite_id == of_suite, a.reason.in_(reasons)))
        for each in told:
            key = {"session_id": session_id, "suite_id": suite_ids[each.suite], "hardware": each.hardware}
            facts = {"reason": each.reason, "text": each.text, "created_at": at}
            connection.execute(sa.insert(tables.absence).values(key | facts))


def record_plan(engine: sa.Engine, session: str, planned: int, *, at: datetime) -> None:
    """Tell how many processes a session is to have. A plan that is made again takes the place of the one before.

    at: the moment that the plan's absences have, which are told before. Raises StoreError.
    """
    with writing(engine) as connection:
        session_id = _id_of(connection, tables.session, {"name": session})
        of_session = sa.update(tables.session).where(tables.session.c.id == session_id)
        connection.execute(of_session.values(planned=planned, planned_at=at))


def settle_plan(engine: sa.Engine, session: str, *, missing: int) -> None:
    """All that is still to come of a planned session are `missing` processes: a build that failed gave one result in
    place of several. Raises StoreError."""
    s = tables.session.c
    with writing(engine) as connection:
        connection.execute(sa.select(s.id).where(s.name == session).with_for_update(key_share=True))
        for known in progress.found(connection, s.name == session):
            connection.execute(
                sa.update(tables.session).where(s.name == session).values(planned=known.finished + missing)
            )


def raise_alerts(engine: sa.Engine, alerts: Sequence[NewAlert], *, at: datetime | None = None) -> int:
    """Store confirmed changes; returns how many are new. A known one gets the newer evidence; what people said stays.

    at: the moment, now by default. Raises StoreError for a series or commit that is not stored.
    """
    moment = at or datetime.now(UTC)
    new = 0
    with writing(engine) as connection:
        for alert in sorted(alerts, key=lambda a: (a.series_id, a.commit_sha)):
            evidence: Row = {
                "kind": alert.kind,
                "ratio": alert.ratio,
                "low": alert.low,
                "high": alert.high,
                "evidence": dict(alert.evidence),
                "updated_at": moment,
            }
            key = {"series_id": alert.series_id, "commit_id": _alert_commit(connection, alert)}
            untouched = {"state": AlertState.NEW, "assignee": "", "note": "", "created_at": moment}
            insert = _insert(connection, tables.alert).values(key | evidence | untouched)
            if connection.scalar(insert.returning(tables.alert.c.id)) is not None:
                new += 1
            else:
                connection.execute(sa.update(tables.alert).filter_by(**key).values(evidence))
    return new


def triage(
    engine: sa.Engine, alert_id: int, *, state: AlertState, assignee: str, note: str, at: datetime | None = None
) -> None:
    """Store what a person decided about an alert. at: the moment, now by default. Raises StoreError."""
    decision = {"state": state, "assignee": assignee, "note": note, "updated_at": at or datetime.now(UTC)}
    with writing(engine) as connection:
        changed = connection.execute(sa.update(tables.alert).where(tables.alert.c.id == alert_id).values(decision))
        if changed.rowcount != 1:
            raise StoreError(f"there is no alert {alert_id}", next_step="look at the list of alerts again")


def fingerprint(environment: Environment) -> str:
    """Sixteen hexadecimal digits that are equal for equal environments, on every machine."""
    plain = json.dumps(dataclasses.asdict(environment), sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def pack(samples: Iterable[float]) -> bytes:
    """float64, little endian: what `measurement.samples` holds."""
    packed = array("d", samples)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _origin(stated: Origin, wanted: Origin | None, path: str) -> Origin:
    if wanted is None or wanted is stated:
        return stated
    if (stated, wanted) == (Origin.MEASURED, Origin.RECORDED):
        return wanted
    raise ArtifactError(
        f"{path} holds {stated} numbers, not {wanted} ones", next_step="ingest it without naming an origin"
    )


def _upsert(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)


def _insert(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    return _upsert(connection, table).on_conflict_do_nothing()


def _found(value: int | None) -> int:
    """A row that the statement before made sure of."""
    if value is None:
        raise AssertionError("a row vanished inside of a transaction")
    return value


def _id_of(connection: sa.Connection, table: sa.Table, key: Row, facts: Row | None = None) -> int:
    """The row with this unique key; made with `facts` where there is none. A stored row's facts stay."""
    find = sa.select(table.c.id).filter_by(**key)
    if (known := connection.scalar(find)) is not None:
        return int(known)
    made = connection.scalar(_insert(connection, table).values(key | (facts or {})).returning(table.c.id))
    return _found(made if made is not None else connection.scalar(find))


def _run_id(connection: sa.Connection, sha256: str) -> int | None:
    return connection.scalar(sa.select(tables.run.c.id).where(tables.run.c.artifact_sha256 == sha256))


def _suite(connection: sa.Connection, name: str, *, synthetic: bool, path: str) -> int:
    suite_id = _id_of(connection, tables.suite, {"name": name}, {"synthetic": synthetic})
    stored = connection.scalar(sa.select(tables.suite.c.synthetic).where(tables.suite.c.id == suite_id))
    if stored != synthetic:
        kinds = ("measured", "synthetic")
        raise ArtifactError(
            f"{path} holds {kinds[synthetic]} numbers, the suite {name!r} holds {kinds[not synthetic]} ones",
            next_step="give one of the two another suite name",
        )
    return suite_id


def _suite_of_any_origin(connection: sa.Connection, name: str) -> int:
    return _id_of(connection, tables.suite, {"name": name}, {"synthetic": False})


def _session_for_absences(connection: sa.Connection, name: str, *, make: bool) -> int | None:
    """Locked, so that two plans of one session do not mix."""
    if make:
        _id_of(connection, tables.session, {"name": name})
    c = tables.session.c
    return connection.scalar(sa.select(c.id).where(c.name == name).with_for_update(key_share=True))


def _hardware(connection: sa.Connection, run: Run, *, path: str) -> int:
    """A class of device has one history: times of another device under its name are refused.

    A run without times may not know its device (its build failed before a `launch` reached it): it says nothing then.
    """
    facts = dataclasses.asdict(run.hardware)
    name = facts.pop("name")
    hardware_id = _id_of(connection, tables.hardware, {"name": name}, facts)
    if not any(measurement.timing for measurement in run.measurements):
        return hardware_id
    h, of_hardware = tables.hardware.c, tables.run.c.hardware_id == hardware_id
    told = (run.hardware.model, run.hardware.count, run.hardware.partition)
    # By position: `count` of a row is a method.
    stored = tuple(connection.execute(sa.select(h.model, h.count, h.partition).where(h.id == hardware_id)).one())
    if stored == told:
        return hardware_id
    timed = sa.select(tables.run.c.id).join(tables.measurement).where(of_hardware, tables.measurement.c.n > 0)
    if connection.scalar(timed.limit(1)) is None:
        connection.execute(sa.update(tables.hardware).where(h.id == hardware_id).values(facts))
        return hardware_id
    theirs, ours = (f"{count} x {model} {partition}".rstrip() for model, count, partition in (told, stored))
    raise ArtifactError(
        f"{path} is of {theirs}, the hardware {name!r} is {ours}",
        next_step="nothing of it was stored; give the device a [hardware.NAME] of its own and measure again",
    )


def _run_row(connection: sa.Connection, run: Run, suite_id: int, *, path: str) -> Row:
    environment = {"fingerprint": fingerprint(run.environment)}
    return {
        "suite_id": suite_id,
        "hardware_id": _hardware(connection, run, path=path),
        "node_id": _id_of(connection, tables.node, dataclasses.asdict(run.node)),
        "environment_id": _id_of(connection, tables.environment, environment, dataclasses.asdict(run.environment)),
        "session_id": _id_of(connection, tables.session, {"name": run.session}),
        "commit_id": _commit(connection, run.commit, suite_id),
        "index": run.index,
        "origin": run.origin,
        "status": run.status,
        "harness": run.harness,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "reason": run.reason,
        "log_tail": run.log_tail,
        "telemetry": dataclasses.asdict(run.telemetry),
        "device_seconds": (run.finished_at - run.started_at).total_seconds() * run.hardware.count,
    }


def _commit(connection: sa.Connection, commit: Commit, suite_id: int) -> int:
    """A result file may name a commit's position, unless the branch itself is known to have another commit there."""
    c = tables.commit.c
    taken = sa.select(c.id).where(c.suite_id == suite_id, c.position == commit.position, c.on_branch)
    if commit.position is not None and connection.scalar(taken.limit(1)) is not None:
        commit = dataclasses.replace(commit, position=None)
    row = _commit_row(commit, suite_id, on_branch=False)
    return _id_of(connection, tables.commit, {"suite_id": suite_id, "sha": row.pop("sha")}, row)


def _commit_row(commit: Commit, suite_id: int, *, on_branch: bool) -> Row:
    return dataclasses.asdict(commit) | {"suite_id": suite_id, "on_branch": on_branch}


def _series(connection: sa.Connection, run: Run, row: Row, *, path: str) -> Mapping[tuple[str, str, str], int]:
    """Ids by (workload, implementation, metric), new series included."""
    t = tables.series.c
    place = {"suite_id": row["suite_id"], "hardware_id": row["hardware_id"]}
    find = sa.select(t.id, t.workload, t.implementation, t.metric, t.unit, t.direction).filter_by(**place)
    wanted = {_series_key(m): m.metric for m in run.measurements}
    known = {(r.workload, r.implementation, r.metric): r for r in connection.execute(find)}
    if new := sorted(wanted.keys() - known.keys()):
        rows = [
            place | _series_row(key) | {"unit": wanted[key].unit, "direction": wanted[key].direction} for key in new
        ]
        connection.execute(_insert(connection, tables.series), rows)
        known = {(r.workload, r.implementation, r.metric): r for r in connection.execute(find)}
    for key, metric in wanted.items():
        if (known[key].unit, known[key].direction) != (metric.unit, metric.direction):
            raise ArtifactError(
                f"{path}: {' / '.join(key)} is in {metric.unit!r}, {metric.direction}, but its series is in "
                f"{known[key].unit!r}, {known[key].direction}",
                next_step="nothing of it was stored; give the metric another name",
            )
    return {key: known[key].id for key in wanted}


def _series_key(measurement: Measurement) -> tuple[str, str, str]:
    return measurement.workload.name, measurement.implementation, measurement.metric.name


def _series_row(key: tuple[str, str, str]) -> Row:
    return dict(zip(("workload", "implementation", "metric"), key, strict=True))


def _controls(connection: sa.Connection, run: Run, run_id: int) -> None:
    rows = [dataclasses.asdict(c) | {"run_id": run_id, "number": number} for number, c in enumerate(run.controls)]
    if rows:
        connection.execute(sa.insert(tables.control), rows)


def _measurements(
    connection: sa.Connection, run: Run, run_id: int, *, series_ids: Mapping[tuple[str, str, str], int]
) -> None:
    rows = [_measurement_row(m) | {"run_id": run_id, "series_id": series_ids[_series_key(m)]} for m in run.measurements]
    if rows:
        connection.execute(sa.insert(tables.measurement), sorted(rows, key=lambda row: int(row["series_id"])))


def _measurement_row(measurement: Measurement) -> Row:
    workload = dataclasses.asdict(measurement.workload)
    del workload["name"]
    return (
        workload
        | _timing_row(measurement)
        | {
            "status": measurement.status,
            "verified": measurement.verified,
            "error": measurement.error,
            "tolerance": measurement.tolerance,
            "reason": measurement.reason,
            "extras": dict(measurement.extras),
        }
    )


def _timing_row(measurement: Measurement) -> Row:
    timing = measurement.timing
    if timing is None:
        nothing = dict.fromkeys(("median", "mad", "p10", "p90", "clock", "iterations", "samples"))
        return nothing | {"n": 0, "resolution": 0.0}
    return dataclasses.asdict(summarize(timing.samples)) | {
        "clock": timing.clock,
        "iterations": timing.iterations,
        "resolution": timing.resolution,
        "samples": pack(timing.samples),
    }


def _alert_commit(connection: sa.Connection, alert: NewAlert) -> int:
    of_series = sa.select(tables.commit.c.id).join(tables.series, tables.series.c.suite_id == tables.commit.c.suite_id)
    found = connection.scalar(
        of_series.where(tables.series.c.id == alert.series_id, tables.commit.c.sha == alert.commit_sha)
    )
    if found is None:
        raise StoreError(
            f"there is no commit {alert.commit_sha} in the suite of series {alert.series_id}",
            next_step="ingest its results first",
        )
    return int(found)
