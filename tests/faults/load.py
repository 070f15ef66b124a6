"""Load: simulated nodes hand a night over to a real `perfci serve` while it is ingested and the dashboard is read.

    python -m tests.faults.load --database postgresql+psycopg://user@host/empty --nodes 50 --measurements 500

The database and the folder may be those of an earlier call: --night then tells which night of them this is. Prints one
JSON object; docs/scale.md says what came out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import signal
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import sqlalchemy as sa

from perfci import grants
from perfci.store import reads
from perfci.store.engine import connect, reading
from perfci.store.schema import upgrade
from tests.faults import fleet, results
from tests.faults.deployment import Deployment
from tests.faults.fleet import Delivery, Told

BUNDLE_BYTES = 2_000_000
TAKEN_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", required=True, help="SQLAlchemy URL; its schema is made or brought up to date")
    parser.add_argument("--folder", type=Path, required=True, help="the control plane's, made if it is not there")
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--measurements", type=int, default=500, help="of one result file")
    parser.add_argument("--runs", type=int, default=3, help="result files of a node a night")
    parser.add_argument("--night", type=int, default=0)
    parser.add_argument("--rate", type=float, help="files a second of all nodes together; default: as fast as taken")
    parser.add_argument("--ingests", type=int, default=1, help="`perfci ingest` loops at once")
    parser.add_argument("--alone", type=float, default=20.0, help="seconds that pages are asked without load")
    parser.add_argument("--no-detect", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    upgrade(options.database)
    found = night(
        *(options.folder, options.database),
        nodes=results.fleet(options.nodes, measurements=options.measurements, runs=options.runs),
        number=options.night,
        rate=options.rate,
        ingests=options.ingests,
        alone_s=options.alone,
        detect=not options.no_detect,
    )
    print(json.dumps(found, indent=1))


def night(
    folder: Path,
    url: str,
    *,
    nodes: Sequence[results.SimulatedNode],
    number: int = 0,
    rate: float | None = None,
    ingests: int = 1,
    alone_s: float = 0.0,
    detect: bool = True,
) -> dict[str, Any]:
    """One night of these nodes, from the first request to the last stored file, and what it took."""
    with Deployment(folder, url, hardware=sorted({node.hardware for node in nodes}), settings=_suites(nodes)) as place:
        deliveries = _prepared(place, nodes, number)
        files = sum(len(delivery.files) for delivery in deliveries)
        before = _size(url)
        server = place.serve()
        found: dict[str, Any] = {"machine": _machine(url), "nodes": len(nodes), "files": files, "rate": rate}
        if alone_s:
            found["pages_alone"] = _pages(place, lambda: time.sleep(alone_s))
            found["put_alone"] = _spread(_warm(place, nodes[0], number))
        with _Ingesting(place, ingests) as ingesting, _Backlog(place) as backlog:

            def loaded() -> Told:
                before = _cpu_s(server.pid, url)
                told = fleet.deliver(place.server, deliveries, rate=rate)
                ingesting.drained()
                found["cpu_s"] = {name: round(s - before[name], 2) for name, s in _cpu_s(server.pid, url).items()}
                return told

            began = time.monotonic()
            if alone_s:
                told = _under_pages(place, loaded, found)
            else:
                told = loaded()
            seconds = time.monotonic() - began
        found |= _told(told, seconds, backlog.largest, files, nodes)
        found["database_bytes"], found["database_bytes_a_night"] = _size(url), _size(url) - before
        if detect:
            began = time.monotonic()
            done = place.perfci("detect", "--session", nodes[0].job(number)["session"], limit_s=None)
            assert done.returncode in (0, 1), done.stderr
            found["detect_s"] = time.monotonic() - began
        found["stored"] = _stored(url, nodes[0].job(number)["session"])
        return found


class _Ingesting:
    """`perfci ingest` again and again, as the steps of the DAG do."""

    def __init__(self, place: Deployment, loops: int) -> None:
        self._place, self._stop, self._failed = place, threading.Event(), []
        self._threads = [threading.Thread(target=self._loop) for _ in range(loops)]

    def _loop(self) -> None:
        while not self._stop.is_set():
            done = self._place.perfci("ingest", limit_s=None)
            if done.returncode:
                self._failed.append(done.stderr)
            self._stop.wait(0.2)

    def drained(self) -> None:
        while self._place.files("incoming"):
            time.sleep(0.1)

    def __enter__(self) -> _Ingesting:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self._failed, self._failed[0]


class _Backlog:
    """How many files wait to be ingested, looked at once a second."""

    def __init__(self, place: Deployment) -> None:
        self.largest = 0
        self._place, self._stop = place, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stop.wait(TAKEN_S):
            self.largest = max(self.largest, len(self._place.files("incoming")))

    def __enter__(self) -> _Backlog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def _prepared(place: Deployment, nodes: Sequence[results.SimulatedNode], number: int) -> list[Delivery]:
    """Files of all nodes on the disk, and a granted job for each; what a node does itself before the clock starts."""
    settings = place.settings
    settings.bundles.mkdir(parents=True, exist_ok=True)
    sources = os.urandom(BUNDLE_BYTES)
    digest = hashlib.sha256(sources).hexdigest()
    (settings.bundles / f"{digest}.bundle").write_bytes(sources)
    key, now = grants.signing_key(settings), datetime.now(UTC)
    made = []
    for node in nodes:
        own = place.folder / "nodes" / node.name
        own.mkdir(parents=True, exist_ok=True)
        job = {**node.job(number), "bundle": {"sha256": digest, "bytes": BUNDLE_BYTES}}
        made.append(Delivery({**job, "token": grants.mint(key, job, now=now)}, results.write(node, number, own)))
    return made


def _suites(nodes: Sequence[results.SimulatedNode]) -> str:
    names = sorted({node.suite for node in nodes})
    return "".join(f'[suite.{name}]\nrepo = "none"\nrun = "pytest bench"\n' for name in names)


def _warm(place: Deployment, node: results.SimulatedNode, number: int) -> list[float]:
    """Uploads of one node, one after another, with nothing else going on: of a session of its own."""
    measured = []
    for repeat in range(5):
        alone = results.SimulatedNode(node.number + 10_000 + repeat, node.measurements, node.runs)
        [delivery] = _prepared(place, [alone], number)
        measured += fleet.deliver(place.server, [delivery]).puts
    for path in place.files("incoming"):
        path.unlink()
    return measured


def _pages(place: Deployment, during: Callable[[], Any]) -> dict[str, Any]:
    answers = place.folder / f"answers-{time.monotonic_ns()}.jsonl"
    process = place.start("tests.faults.pages", str(answers))
    while not (answers.exists() and "line" in answers.read_text()):
        assert process.poll() is None, place.logs()
        time.sleep(0.1)
    skipped = len(answers.read_text().splitlines())
    during()
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    rows = [json.loads(line) for line in answers.read_text().splitlines()[skipped:] if line.endswith("}")]
    assert not [row for row in rows if "error" in row], rows
    return {
        page: _spread([row["seconds"] for row in rows if row["page"] == page]) for page in {r["page"] for r in rows}
    }


def _under_pages(place: Deployment, during: Callable[[], Told], found: dict[str, Any]) -> Told:
    kept: list[Told] = []
    found["pages_loaded"] = _pages(place, lambda: kept.append(during()))
    return kept[0]


def _told(
    told: Told, seconds: float, backlog: int, files: int, nodes: Sequence[results.SimulatedNode]
) -> dict[str, Any]:
    measurements = files * nodes[0].measurements
    return {
        "measurements": measurements,
        "megabytes": round(told.sent_bytes / 1e6, 1),
        "delivered_s": round(told.seconds, 2),
        "stored_s": round(seconds, 2),
        "files_per_s_delivered": round(files / told.seconds, 2),
        "files_per_s_stored": round(files / seconds, 2),
        "measurements_per_s_stored": round(measurements / seconds, 1),
        "largest_backlog": backlog,
        "put": _spread(told.puts),
        "bundle": _spread(told.bundles),
        "statuses": told.statuses,
        "tried_again": told.tried_again,
    }


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    if not ordered:
        return {"n": 0}
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return {
        "n": len(ordered),
        "p50": round(statistics.median(ordered), 4),
        "p99": round(p99, 4),
        "most": round(ordered[-1], 4),
    }


def _size(url: str) -> int:
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///"))
        return sum(p.stat().st_size for p in path.parent.glob(f"{path.name}*"))
    engine = connect(url)
    with reading(engine) as connection:
        size = int(connection.scalar(sa.select(sa.func.pg_database_size(sa.func.current_database()))) or 0)
    engine.dispose()
    return size


def _stored(url: str, session: str) -> int:
    """Runs of this night, each process of it once."""
    engine = connect(url, read_only=True)
    names = [suite.name for suite in reads.suites(engine)]
    found = [run for name in names for run in reads.runs(engine, suite=name, session=session)]
    engine.dispose()
    assert len({(run.hardware, run.suite, run.index) for run in found}) == len(found)
    return len(found)


def _cpu_s(server: int, url: str) -> dict[str, float]:
    """Processor time so far of each part."""
    children, own = (resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    return {
        "serve": _used(psutil.Process(server)),
        "ingest": children.ru_utime + children.ru_stime,  # the other children have not ended
        "nodes": own.ru_utime + own.ru_stime,
        "postgresql": sum(map(_used, _database_server(url))),
    }


def _used(process: psutil.Process) -> float:
    """With that of its children that have ended."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _database_server(url: str) -> list[psutil.Process]:
    port = sa.make_url(url).port
    listening = {
        c.pid for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.laddr.port == port
    }
    found = [psutil.Process(pid) for pid in listening if pid]
    return found + [child for process in found for child in process.children()]


def _machine(url: str) -> str:
    with Path("/proc/cpuinfo").open() as stream:
        model = next((line.split(":", 1)[1].strip() for line in stream if line.startswith("model name")), "")
    engine = connect(url)
    with reading(engine) as connection:
        version = ".".join(map(str, connection.dialect.server_version_info or ()))
    engine.dispose()
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}, {engine.dialect.name} {version}"


if __name__ == "__main__":
    main()
