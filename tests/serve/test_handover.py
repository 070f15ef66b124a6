"""The node's half against a real server: what is on the node stays there until the server has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from perfci import artifact, handover
from perfci.errors import ServiceError
from perfci.handover import Patience, Refused, Unreachable
from tests.nightly.place import wait_for
from tests.serve.place import ROOT, Served, a_result_run, sha256_of, sized

SOON = Patience(seconds=30.0, first_s=0.05, longest_s=0.2)
NEVER = Patience(seconds=0.0)


class Node:
    def __init__(self, folder: Path) -> None:
        self.outgoing = folder / "outgoing"
        self.cache = folder / "cache"
        self.told: list[str] = []

    def measured(self, job: Mapping[str, Any], *indexes: int, **changed: Any) -> list[Path]:
        """Results in the job's folder, as measuring leaves them there."""
        with handover.parcel(self.outgoing, job) as parcel:
            return [artifact.write(a_result_run(job, index, **changed), parcel.folder) for index in indexes]

    def deliver(self, job: Mapping[str, Any], paths: list[Path], patience: Patience = SOON) -> tuple[Path, ...]:
        return handover.deliver(job, paths, outgoing=self.outgoing, echo=self.told.append, patience=patience)

    def fetch(self, job: Mapping[str, Any], patience: Patience = SOON) -> Path:
        return handover.fetch(job, self.cache, echo=self.told.append, patience=patience)

    def waiting(self) -> list[str]:
        return sorted(path.name for path in self.outgoing.glob("*/*.perfci.json"))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def test_results_are_gone_from_the_node_when_the_server_has_them(running: Served, node: Node) -> None:
    job = running.job()
    paths = node.measured(job, 0, 1, 2)
    assert node.deliver(job, paths) == tuple(paths)
    assert len(running.incoming(job)) == 3
    assert list(node.outgoing.iterdir()) == []
    assert job["token"] not in "".join(node.told)


def test_results_wait_for_a_server_that_is_away_and_go_with_the_next_job(served: Served, node: Node) -> None:
    first, second = served.job(), served.job()
    with pytest.raises(Unreachable, match=r"perfci serve.*nothing is lost"):
        node.deliver(first, node.measured(first, 0, 1), NEVER)
    assert len(node.waiting()) == 2
    served.start()
    delivered = node.deliver(second, node.measured(second, 0))
    assert len(delivered) == 3
    assert (len(served.incoming(first)), len(served.incoming(second)), node.waiting()) == (2, 1, [])


def test_a_server_that_comes_back_is_found_again(served: Served, node: Node) -> None:
    job = served.job()
    paths = node.measured(job, 0)
    late = threading.Timer(1.0, served.start)
    late.start()
    assert len(node.deliver(job, paths)) == 1
    late.join()
    assert any("trying again in" in line for line in node.told)


def test_a_large_result_survives_the_server_s_death(served: Served, node: Node) -> None:
    served.start()
    job = served.job()
    (path,) = node.measured(job, 0)
    data = sized(path.read_bytes(), 20 * 2**20)
    path.write_bytes(data)
    delivering = threading.Thread(target=node.deliver, args=(job, [path]))
    delivering.start()
    wait_for(lambda: bool(served.parts()) or bool(served.incoming(job)))
    served.stop(signal.SIGKILL)
    served.start()
    delivering.join()
    assert [each.read_bytes() for each in served.incoming(job)] == [data]
    assert node.waiting() == []


def test_a_node_that_is_killed_while_it_delivers_delivers_the_rest_later(running: Served, node: Node) -> None:
    job = running.job(runs=12)
    paths = node.measured(job, *range(12))
    for path in paths:
        path.write_bytes(sized(path.read_bytes(), 2**20))
    code = (
        "import json, sys; from pathlib import Path; from perfci import handover\n"
        "job = json.loads(sys.argv[1]); print('begun', flush=True)\n"
        "handover.deliver(job, [Path(p) for p in sys.argv[3:]], outgoing=Path(sys.argv[2]), echo=print)"
    )
    command = (sys.executable, "-c", code, json.dumps(job), str(node.outgoing), *map(str, paths))
    child = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL)
    wait_for(lambda: bool(running.incoming(job)))
    child.kill()
    child.wait()
    rest = [path for path in paths if path.exists()]
    node.deliver(job, rest)
    assert len(running.incoming(job)) == 12
    assert node.waiting() == []


def test_what_is_refused_is_kept_beside_its_reason_and_the_others_go_on(running: Served, node: Node) -> None:
    job = running.job()
    good, foreign = node.measured(job, 0, 1)
    foreign.write_bytes(artifact.encode(a_result_run({"session": "another"}, 1)))
    with pytest.raises(Refused, match="session"):
        node.deliver(job, [foreign, good])
    assert len(running.incoming(job)) == 1
    (folder,) = node.outgoing.glob("*/refused")
    assert (folder / foreign.name).is_file()
    assert "session" in (folder / f"{foreign.name}.reason.txt").read_text()
    assert node.waiting() == []


def test_a_result_that_comes_after_its_token_s_end_is_kept_with_the_reason(running: Served, node: Node) -> None:
    late = running.job()
    late["token"] = running.token(late, now=datetime.now(UTC) - timedelta(days=3))
    with pytest.raises(Refused, match="ended at"):
        node.deliver(late, node.measured(late, 0))
    (reason,) = node.outgoing.glob("*/refused/*.reason.txt")
    assert "plan the job again" in reason.read_text()
    # Another job's delivery does not stumble over it.
    job = running.job()
    assert len(node.deliver(job, node.measured(job, 0))) == 1


def test_what_something_on_the_way_refuses_waits(node: Node, running: Served) -> None:
    """A proxy that knows no such path has not judged the result."""
    job = running.job() | {"server": f"{running.url}/wrong"}
    with pytest.raises(Refused, match="404"):
        node.deliver(job, node.measured(job, 0))
    assert len(node.waiting()) == 1
    assert not list(node.outgoing.glob("*/refused"))


def test_the_token_is_for_its_owner_alone(running: Served, node: Node) -> None:
    job = running.job()
    node.measured(job, 0)
    assert node.outgoing.stat().st_mode & 0o077 == 0
    assert {f.stat().st_mode & 0o077 for f in node.outgoing.iterdir()} == {0}


def test_two_processes_are_never_at_one_job(node: Node, running: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfci.handover import parcels

    monkeypatch.setattr(parcels, "_NEIGHBOUR_S", 0.2)
    job = running.job()
    with (
        handover.parcel(node.outgoing, job),
        pytest.raises(ServiceError, match="another process of this node"),
        handover.parcel(node.outgoing, job),
    ):
        pytest.fail("it was opened twice")


# ---------------------------------------------------------------------------------------------- sources


def a_bundle(running: Served, data: bytes) -> dict[str, Any]:
    """A job whose sources are these bytes."""
    sha256 = sha256_of(data)
    running.settings.bundles.mkdir(exist_ok=True)
    (running.settings.bundles / f"{sha256}.bundle").write_bytes(data)
    return running.job(bundle={"sha256": sha256, "bytes": len(data)})


def test_sources_are_fetched_once_and_verified(running: Served, node: Node) -> None:
    data = os.urandom(3_000_000)
    job = a_bundle(running, data)
    path = node.fetch(job)
    assert path.read_bytes() == data
    (running.settings.bundles / path.name).unlink()
    assert node.fetch(job) == path
    path.write_bytes(b"damaged")
    with pytest.raises(Refused, match=r"not here any more.*plan the job again"):
        node.fetch(job)


def test_a_fetch_goes_on_where_it_broke_off(running: Served, node: Node) -> None:
    data = os.urandom(500_000)
    job = a_bundle(running, data)
    part = node.cache / "bundles" / f"{job['bundle']['sha256']}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(data[:400_000])
    assert node.fetch(job).read_bytes() == data
    # What is there of another file is found out, and fetched anew.
    other = a_bundle(running, data[::-1])
    (node.cache / "bundles" / f"{other['bundle']['sha256']}.part").write_bytes(data[:400_000])
    assert node.fetch(other).read_bytes() == data[::-1]
    # More than the whole is no part of it.
    third = a_bundle(running, data[1:])
    (node.cache / "bundles" / f"{third['bundle']['sha256']}.part").write_bytes(data)
    assert node.fetch(third).read_bytes() == data[1:]


def test_another_bundle_than_was_planned_is_not_used(running: Served, node: Node) -> None:
    job = a_bundle(running, b"x" * 1000)
    (running.settings.bundles / f"{job['bundle']['sha256']}.bundle").write_bytes(b"y" * 1000)
    with pytest.raises(ServiceError, match="sends another bundle"):
        node.fetch(job)
    (running.settings.bundles / f"{job['bundle']['sha256']}.bundle").write_bytes(b"y" * 1001)
    with pytest.raises(Refused, match="more than 1000 bytes"):
        node.fetch(job)
    assert not list(node.cache.glob("bundles/*.bundle"))


def test_a_bundle_is_for_its_job_s_token_alone(running: Served) -> None:
    job, other = a_bundle(running, b"mine" * 100), a_bundle(running, b"theirs" * 100)
    path = f"/v1/bundles/{job['bundle']['sha256']}"
    with running.client(other["token"]) as client:
        assert client.get(path).status_code == 403
        assert client.get("/v1/bundles/..%2f..%2fperfci.toml").status_code == 404
        assert client.get("/v1/bundles/handover.key").status_code == 404
    with running.client(job["token"]) as client:
        assert client.get(path).content == b"mine" * 100
        part = client.get(path, headers={"Range": "bytes=396-"})
        assert (part.status_code, part.content, part.headers["content-range"]) == (206, b"mine", "bytes 396-399/400")
        assert client.get(path, headers={"Range": "bytes=400-"}).status_code == 416
        assert client.head(path).headers["content-length"] == "400"
