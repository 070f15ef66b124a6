"""What the steps of a night say of themselves, as commands in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from perfci import artifact
from tests.build import a_run

INGEST = """
import sys
from perfci import logs, nightly
logs.configure()
nightly.ingest(sys.argv[1])
"""


def ingest(config: Path, **environment: str) -> str:
    told = subprocess.run(
        [sys.executable, "-c", INGEST, str(config)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin", **environment},
    )
    assert told.stdout == ""
    return told.stderr


def test_ingest_says_what_it_stored_knew_and_refused(tmp_path: Path) -> None:
    config = tmp_path / "perfci.toml"
    config.write_text("")
    incoming = tmp_path / ".perfci" / "incoming"
    incoming.mkdir(parents=True)
    for name in ("a", "b"):
        (incoming / f"{name}{artifact.SUFFIX}").write_bytes(artifact.encode(a_run()))
    (incoming / f"c{artifact.SUFFIX}").write_bytes(b'{"password": "postgresql://me:s3cret@db/x"}')
    lines: list[dict[str, Any]] = [json.loads(line) for line in ingest(config, PERFCI_LOG="json").splitlines()]
    told = {line["event"]: line for line in lines}
    assert list(told) == ["stored", "known", "refused"]
    stored = told["stored"]
    assert (stored["level"], stored["session"], stored["suite"]) == ("info", "night-1", "kernels")
    assert (stored["hardware"], stored["run"], stored["status"]) == ("cpu-test-2c", told["known"]["run"], "ok")
    assert told["refused"]["level"] == "warning"
    assert told["refused"]["file"].endswith(f"refused/c{artifact.SUFFIX}")
    (incoming / f"d{artifact.SUFFIX}").write_bytes(artifact.encode(a_run()))
    [line] = ingest(config).splitlines()
    assert " info known session=night-1 run=1 suite=kernels " in line
