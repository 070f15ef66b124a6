"""Results over HTTP: taken once, whatever breaks off; by a client that says what it pleases."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from perfci import artifact, nightly
from perfci.store import reads
from tests.build import H200, a_commit, a_measurement
from tests.nightly.place import wait_for
from tests.serve.place import Served, a_result, ended, put, request_head, sha256_of, sized, status_of

MIB = 1024 * 1024


def test_a_result_is_stored_once_however_often_it_comes(served: Served) -> None:
    served.start()
    job = served.job()
    data = a_result(job)
    with served.client(job["token"]) as client:
        assert [put(client, data).status_code for _ in range(3)] == [201, 200, 200]
        assert [path.read_bytes() for path in served.incoming(job)] == [data]
        told = nightly.ingest(str(served.config))
        assert (told["stored"], told["refused"]) == (1, [])
        again = put(client, data)
    assert (again.status_code, again.json()["state"], served.incoming(job)) == (200, "known", [])
    assert reads.counts(nightly.opened(served.settings, read_only=True))["run"] == 1
    assert served.parts() == []


def test_one_result_from_two_nodes_five_times_each_at_once_is_one(running: Served) -> None:
    job = running.job()
    data = sized(a_result(job), 2 * MIB)
    found: list[int] = []

    def node() -> None:
        with running.client(job["token"]) as client:
            found.extend(put(client, data).status_code for _ in range(5))

    nodes = [threading.Thread(target=node) for _ in range(2)]
    for each in nodes:
        each.start()
    for each in nodes:
        each.join()
    assert len(found) == 10
    assert set(found) <= {200, 201, 409}
    assert Counter(found)[201] == 1
    assert [path.read_bytes() for path in running.incoming(job)] == [data]


def test_an_upload_goes_on_where_it_was_when_the_server_was_killed(served: Served) -> None:
    served.start()
    job = served.job()
    data = sized(a_result(job), 6 * MIB)
    with served.connection() as connection:
        connection.sendall(request_head(job, data) + data[: 4 * MIB])
        wait_for(lambda: [part.stat().st_size for part in served.parts()] >= [3 * MIB])
        served.stop(signal.SIGKILL)
    served.start()
    with served.client(job["token"]) as client:
        there = int(client.head(f"/v1/artifacts/{sha256_of(data)}").headers["upload-offset"])
        assert 3 * MIB <= there <= 4 * MIB
        rest = put(client, data[there:], sha256=sha256_of(data), upload_offset=str(there))
        assert rest.status_code == 201
    assert [path.read_bytes() for path in served.incoming(job)] == [data]
    assert served.parts() == []


def test_an_upload_goes_on_where_it_was_when_the_client_was_cut_off(running: Served) -> None:
    job = running.job()
    data = sized(a_result(job), 300_000)
    with running.connection() as connection:
        connection.sendall(request_head(job, data) + data[:200_001])
        wait_for(lambda: bool(running.parts()))
    with running.client(job["token"]) as client:
        path = f"/v1/artifacts/{sha256_of(data)}"
        wait_for(lambda: client.head(path).headers["upload-offset"] == "200001")
        early = put(client, data[250_000:], sha256=sha256_of(data), upload_offset="250000")
        assert (early.status_code, early.headers["upload-offset"]) == (409, "200001")
        assert client.head(path).headers["upload-complete"] == "?0"
        assert put(client, data[200_001:], sha256=sha256_of(data), upload_offset="200001").status_code == 201
        assert client.head(path).headers["upload-complete"] == "?1"
    assert [each.read_bytes() for each in running.incoming(job)] == [data]


def test_a_file_may_come_in_pieces(running: Served) -> None:
    job = running.job()
    data = a_result(job)
    with running.client(job["token"]) as client:
        for offset in range(0, len(data), 1000):
            piece = data[offset : offset + 1000]
            told = {"upload_offset": str(offset), "upload_length": str(len(data))}
            answer = put(client, piece, sha256=sha256_of(data), **told)
            assert answer.status_code == (202 if offset + 1000 < len(data) else 201)
            assert answer.headers.get("upload-offset", str(len(data))) == str(offset + len(piece))
    assert [path.read_bytes() for path in running.incoming(job)] == [data]


def test_a_process_has_one_result_whoever_brings_another(running: Served) -> None:
    """A node that comes back after its task was given to another."""
    job = running.job()
    first, other, second = a_result(job), a_result(job, measurements=(a_measurement("other"),)), a_result(job, 1)
    with running.client(job["token"]) as client:
        assert put(client, first).json()["state"] == "stored"
        late = put(client, other)
        assert (late.status_code, late.json()["state"]) == (200, "superseded")
        assert put(client, second).json()["state"] == "stored"
        told = client.get("/v1/artifacts").json()["artifacts"]
        assert told == [{"index": 0, "sha256": sha256_of(first)}, {"index": 1, "sha256": sha256_of(second)}]
        assert len(running.incoming(job)) == 2
        # What ingest could not take counts for nothing: its process may be measured again.
        running.incoming(job)[0].unlink()
        assert put(client, other).json()["state"] == "stored"


def test_another_file_than_was_named_is_refused_and_can_be_sent_again(running: Served) -> None:
    job = running.job()
    data = a_result(job)
    with running.client(job["token"]) as client:
        damaged = put(client, data[:-10] + b"0" * 10, sha256=sha256_of(data))
        assert (damaged.status_code, sorted(damaged.json())) == (422, ["error", "next_step"])
        assert running.incoming(job) == running.parts() == []
        assert put(client, data).status_code == 201


@pytest.mark.parametrize("data", [b"{}", b"\x1f\x8b\x08", b"[" * 100_000, b"null", a_result({"session": "s"})[:-2]])
def test_what_is_no_result_is_refused(running: Served, data: bytes) -> None:
    job = running.job()
    with running.client(job["token"]) as client:
        answer = put(client, data)
    assert answer.status_code == 422
    assert running.incoming(job) == running.parts() == []


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"suite": "other"}, "suite"),
        ({"commit": a_commit(1, sha="f" * 40)}, "commit"),
        ({"commit": a_commit(2, sha=a_commit(1).sha)}, "position"),
        ({"hardware": H200}, "hardware"),
        ({"session": "another"}, "session"),
        ({"index": 3}, "process 3"),
        ({"started_at": datetime.now(UTC) + timedelta(days=2)}, "yet to come"),
    ],
)
def test_a_result_of_another_job_is_refused_by_what_differs(
    running: Served, changed: dict[str, object], name: str
) -> None:
    job = running.job()
    with running.client(job["token"]) as client:
        answer = put(client, a_result(job, **changed))
    assert answer.status_code == 422
    assert name in answer.json()["error"]
    assert running.incoming(job) == running.parts() == []


def test_a_node_whose_clock_is_ten_minutes_ahead_is_no_stranger(running: Served) -> None:
    job = running.job()
    with running.client(job["token"]) as client:
        assert put(client, a_result(job, started_at=datetime.now(UTC) + timedelta(minutes=10))).status_code == 201


def test_a_file_of_the_largest_size_is_taken_and_one_byte_more_is_not_read(running: Served) -> None:
    job = running.job()
    data = sized(a_result(job), artifact.MAX_BYTES)
    with running.client(job["token"]) as client:
        assert put(client, data).status_code == 201
    with running.connection() as connection:
        connection.sendall(request_head(job, data, Content_Length=str(artifact.MAX_BYTES + 1)))
        assert status_of(connection) == 413  # without a byte of the body
        assert ended(connection)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Length": "", "Transfer-Encoding": "chunked"}, 411),
        ({"Upload-Offset": "-1"}, 400),
        ({"Upload-Offset": "1e3"}, 400),
        ({"Upload-Offset": "9" * 400}, 400),
        ({"Upload-Offset": str(artifact.MAX_BYTES)}, 413),
        ({"Upload-Length": str(artifact.MAX_BYTES + 1)}, 413),
        ({"Upload-Length": "1"}, 400),
        ({"Upload-Offset": "1"}, 409),
    ],
)
def test_what_headers_say_decides_before_the_body_is_read(
    running: Served, headers: dict[str, str], status: int
) -> None:
    job = running.job()
    data = a_result(job)
    with running.connection() as connection:
        connection.sendall(request_head(job, data, **headers))
        connection.sendall(data if status in (400, 409) else b"")
        assert status_of(connection) == status
    assert running.incoming(job) == []
    assert all(part.stat().st_size == 0 for part in running.parts())


@pytest.mark.parametrize(
    "name",
    [
        "..%2f..%2f..%2fx",
        "%2e%2e",
        "A" * 64,
        "a" * 63,
        "a" * 65,
        "a" * 63 + "%00",
        "%c3%a9" * 64,
        "a" * 64 + "%2f..",
        "x" * 5000,
    ],
)
def test_a_name_that_is_no_sha256_reaches_no_file(running: Served, name: str) -> None:
    job = running.job()
    before = sorted(running.folder.parent.rglob("*"))
    data = a_result(job)
    with running.connection() as connection:
        connection.sendall(request_head(job, data).replace(sha256_of(data).encode(), name.encode()) + data)
        assert status_of(connection) in (404, 405)
    assert sorted(running.folder.parent.rglob("*")) == before


def test_a_job_leaves_few_unfinished_files_behind(running: Served) -> None:
    job = running.job()
    before = set(running.parts())
    last = b""
    with running.client(job["token"]) as client:
        for index in range(8):
            last = a_result(job, 0, measurements=(a_measurement(f"try-{index}"),))
            told = {"upload_offset": "0", "upload_length": str(len(last))}
            assert put(client, last[:100], sha256=sha256_of(last), **told).status_code == 202
        assert len(set(running.parts()) - before) == 4
        rest = put(client, last[100:], sha256=sha256_of(last), upload_offset="100")
        assert rest.status_code == 201
