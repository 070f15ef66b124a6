from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from perfci import nightly
from perfci.model import Run
from perfci.store import engine as database
from perfci.store import writes
from tests.build import an_artifact
from tests.databases import *  # noqa: F403

SETTINGS = '[suite.kernels]\nrepo = "."\nrun = "pytest"\n'


@dataclass(frozen=True)
class Home:
    """A folder with settings and a database, which the pages read."""

    root: Path
    url: str
    app: Path

    @property
    def config(self) -> Path:
        return self.root / "perfci.toml"

    def store(self, *runs: Run, detect: str = "") -> None:
        """Through the ordinary ingest; with `detect`, changes are looked for as after that session."""
        engine = database.connect(self.url)
        for number, run in enumerate(runs):
            writes.ingest(engine, an_artifact(run), path=f"{number}.perfci.json")
        for suite in {run.suite for run in runs}:
            branch = {run.commit.sha: run.commit for run in runs if run.suite == suite and run.commit.position}
            writes.sync_branch(engine, suite, list(branch.values()))
        engine.dispose()
        if detect:
            nightly.detect(str(self.config), detect)

    def open(self, page: str = "", **selected: str) -> AppTest:
        """The app as a browser would show it at that page, with this selection in the URL."""
        app = AppTest.from_file(str(self.app), default_timeout=60)
        if page:
            app.run()
            app.switch_page(page)
        for key, value in selected.items():
            app.query_params[key] = value
        return app.run()


@pytest.fixture
def home(
    tmp_path: Path, repository: Path, new_sqlite: Callable[[Path], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Home]:
    (tmp_path / "perfci.toml").write_text(SETTINGS)
    (tmp_path / ".perfci").mkdir()
    monkeypatch.setenv("PERFCI_CONFIG", str(tmp_path / "perfci.toml"))
    url = new_sqlite(tmp_path / ".perfci" / "perfci.db")
    yield Home(tmp_path, url, repository / "dashboard" / "app.py")
