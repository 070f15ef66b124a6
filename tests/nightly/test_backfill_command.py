"""`perfci backfill` on one machine, with real measurements."""

from __future__ import annotations

from perfci.bench import probe
from perfci.store import reads
from tests.nightly.place import Place

COMMAND = """
import typer
from perfci.commands import backfill
app = typer.Typer()
app.command()(lambda: None)
backfill.register(app)
app()
"""


def test_a_range_is_announced_with_its_cost_measured_until_it_is_settled_and_shown(place: Place) -> None:
    for number in range(2):
        place.repository.commit({"bench/note.txt": f"{number}"}, f"Note {number}")
    asked = ("backfill", "HEAD~2..HEAD", "--hardware", probe.hardware().name)
    tried = place.python(COMMAND, *asked, "--dry-run")
    assert tried.returncode == 0, tried.stderr
    assert "this step: 2 commits; then up to 1 commit for each change in between" in tried.stderr
    assert reads.counts(place.engine)["run"] == 0
    done = place.python(COMMAND, *asked)
    assert done.returncode == 0, done.stderr
    assert "settled: every change in this range lies between two neighbours" in done.stdout
    assert "device minutes: " in done.stdout
    runs = reads.runs(place.engine, suite="toy")
    assert {run.commit.position for run in runs} >= {1, 3}
    assert len({run.session for run in runs}) == 1
    again = place.python(COMMAND, *asked)
    assert again.returncode == 0, again.stderr
    assert "settled" in again.stderr
    assert reads.counts(place.engine)["run"] == len(runs)
