"""Disks that are full, on either side: said by name, nothing half-written, and it goes on once there is room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import results
from tests.faults.deployment import Deployment
from tests.faults.postgresql import Postgresql, started

NODE = results.SimulatedNode(0, measurements=500, runs=3)


@pytest.fixture
def small_server() -> Iterator[Postgresql]:
    """A PostgreSQL whose data lie on a small disk."""
    with started(disk_of="160m") as server:
        yield server


def test_a_full_disk_of_the_database_stops_ingest_by_name_and_loses_nothing(
    small_server: Postgresql, tmp_path: Path
) -> None:
    with Deployment(tmp_path, small_server.database("perfci")) as place:
        place.settings.incoming.mkdir(parents=True)
        results.write(NODE, 0, place.settings.incoming)
        assert small_server.disk is not None
        small_server.disk.fill(leave=200_000)
        full = place.perfci("ingest")
        assert full.returncode == 2
        assert "has no room left" in full.stderr
        assert "try again" in full.stderr
        stored = {run.artifact_sha256 for run in place.runs()}
        assert len(stored) + len(place.files("incoming")) == 3
        small_server.disk.clear()
        assert place.perfci("ingest").returncode == 0
        assert [run.index for run in place.runs()] == [0, 1, 2]
        assert (len(place.files("incoming")), len(place.files("artifacts"))) == (0, 3)
