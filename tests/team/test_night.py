"""A team's night from end to end: PostgreSQL, `perfci up`, a node's own edge worker, the hand-over over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfci.embedded import home as homes
from perfci.supervisor import marked
from tests.team.place import HARDWARE, team

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.timeout(600)]


def test_a_node_measures_the_night_and_hands_it_over(tmp_path: Path) -> None:
    with team(tmp_path) as place:
        sha = place.repository().git("rev-parse", "HEAD")
        control, node = place.control, place.node("gpu-a")
        service = control.start()
        worker = node.start()
        night = control.perfci("nightly")
        assert night.returncode == 0, night.stdout
        runs = control.runs()
        assert [(run.commit.sha, run.index, run.hardware) for run in runs] == [(sha, 0, HARDWARE), (sha, 1, HARDWARE)]
        assert {run.node for run in runs} == {"gpu-a"}
        assert worker.end() == 0
        assert node.processes() == []
        assert service.end() == 0
        assert marked(homes.of(control.settings).mark) == []
