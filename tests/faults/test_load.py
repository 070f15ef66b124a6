"""A small night of simulated nodes; docs/scale.md has the large ones."""

from __future__ import annotations

from pathlib import Path

from tests.faults import results
from tests.faults.load import night


def test_five_nodes_at_once_lose_nothing_and_store_nothing_twice(database_url: str, tmp_path: Path) -> None:
    nodes = results.fleet(5, measurements=20, runs=3)
    found = night(tmp_path, database_url, nodes=nodes)
    assert found["statuses"] == {201: 15}
    assert (found["stored"], found["measurements"]) == (15, 300)
    again = night(tmp_path, database_url, nodes=nodes)  # all of it once more
    assert again["statuses"] == {200: 15}
    assert again["stored"] == 15
