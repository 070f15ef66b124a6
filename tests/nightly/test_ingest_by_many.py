"""Results of many nodes, delivered more than once, taken in by many ingests at once: each is stored once."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from perfci import artifact, nightly
from perfci.model import Node
from perfci.store import nights, reads
from tests.build import a_commit, a_measurement, a_run
from tests.databases import *  # noqa: F403
from tests.nightly.place import Place
from tests.store.processes import at_once

NODES, RUNS, COPIES, INGESTS = 6, 5, 5, 4


@pytest.fixture
def incoming(place: Place, database_url: str) -> Path:
    """Of a control plane on either database, with every node's results five times each, under names of their own."""
    place.config.write_text(f'{place.config.read_text("utf-8")}\n[service]\ndatabase = "{database_url}"\n', "utf-8")
    folder = place.state / "incoming"
    folder.mkdir(parents=True)
    for node in range(NODES):
        for index in range(RUNS):
            run = a_run(
                [a_measurement(name) for name in ("modular", "megakernel")],
                suite="toy",
                commit=a_commit(node // 2 + 1),
                node=Node(f"node-{node}"),
                index=node * RUNS + index,
            )
            whole = artifact.write(replace(run, log_tail=f"of node {node}"), folder)
            for copy in range(1, COPIES):
                shutil.copyfile(whole, whole.with_name(f"{copy}-{whole.name}"))
    return folder


def test_what_five_deliveries_bring_is_stored_once_by_several_ingests_at_once(
    place: Place, incoming: Path, engine: sa.Engine
) -> None:
    told = at_once(nightly.ingest, [(place.path,)] * INGESTS)
    assert sum(each["stored"] for each in told) == NODES * RUNS
    assert [each["refused"] for each in told] == [[]] * INGESTS
    assert list(incoming.iterdir()) == []
    kept = [path for path in (place.state / "artifacts").rglob("*") if path.is_file()]
    assert len(kept) == NODES * RUNS
    assert all(path.name.startswith(hashlib.sha256(path.read_bytes()).hexdigest()) for path in kept)
    expected = {"run": 30, "measurement": 60, "control": 90, "commit": 3, "node": 6, "session": 1, "series": 2}
    assert reads.counts(engine).items() >= expected.items()
    assert nights.device_seconds(engine, "night-1") == {"cpu-test-2c": 30.0 * NODES * RUNS}
    assert nightly.ingest(place.path) == {"stored": 0, "known": 0, "sessions": [], "refused": []}
