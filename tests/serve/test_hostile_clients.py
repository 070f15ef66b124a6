"""Clients that are slow, silent or in a hurry, and a disk that is full."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nightly.place import wait_for
from tests.serve.place import COMMAND, Served, a_result, ended, put, request_head, sha256_of, sized, status_of

# The command itself, with less patience: a test has less, too.
IMPATIENT = """
import socket
from datetime import UTC, datetime
from pathlib import Path
from perfci import config, nightly
from perfci.serve import server
from perfci.serve.uploads import Pace

server.HEADERS_S = 1.0
settings = config.load(Path("perfci.toml"))
engine = nightly.opened(settings, read_only=True)
with server.listening("127.0.0.1", settings.service.server_port) as sock:
    print(server.address(sock), flush=True)
    pace = Pace(idle_s=1.0, first_s=2.0, least_rate=1e6)
    server.run(settings, engine, sock, now=lambda: datetime.now(UTC), pace=pace)
"""


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("impatient"))
    (made.settings.state / "perfci.db").write_bytes(sqlite_template.read_bytes())
    made.start((sys.executable, "-c", IMPATIENT))
    yield made
    made.stop()


def test_a_body_that_stops_is_let_go_and_what_came_stays(impatient: Served) -> None:
    job = impatient.job()
    data = sized(a_result(job), 100_000)
    with impatient.connection() as connection:
        connection.sendall(request_head(job, data) + data[:60_000])
        assert status_of(connection) == 408
    with impatient.client(job["token"]) as client:
        assert client.head(f"/v1/artifacts/{sha256_of(data)}").headers["upload-offset"] == "60000"
        assert put(client, data[60_000:], sha256=sha256_of(data), upload_offset="60000").status_code == 201


def test_a_body_that_trickles_is_let_go(impatient: Served) -> None:
    job = impatient.job()
    data = sized(a_result(job), 100_000)
    with impatient.connection() as connection:
        connection.sendall(request_head(job, data))
        connection.settimeout(0.2)
        for byte in data[:60]:
            try:
                connection.sendall(bytes([byte]))
                answer = connection.recv(100)
            except TimeoutError:
                continue
            except OSError:
                return
            assert answer.split()[1:2] in ([b"408"], [])
            return
    pytest.fail("it was read to its end")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_a_request_that_never_comes_holds_no_connection(impatient: Served, sent: bytes) -> None:
    with impatient.connection() as connection:
        connection.sendall(sent)
        assert ended(connection)


def test_a_refused_body_without_an_end_holds_no_connection(impatient: Served) -> None:
    job = impatient.job()
    data = sized(a_result(job), 100_000)
    with impatient.connection() as connection:
        connection.sendall(request_head(job, data, Authorization="Bearer x") + data[:10])
        assert status_of(connection) == 401
        assert ended(connection)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /health HTTP/1.1\r\n" + b"X-A: " + b"a" * 70_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PUT /v1/artifacts/x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"PUT /v1/artifacts/x HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_by_400_and_an_end(impatient: Served, request_: bytes) -> None:
    with impatient.connection() as connection:
        try:
            connection.sendall(request_)
        except OSError:
            return  # it was not read to its end
        assert status_of(connection) in (400, 0)
        assert ended(connection)


def test_two_hundred_silent_connections_keep_nobody_out(impatient: Served) -> None:
    job = impatient.job()
    silent = [impatient.connection() for _ in range(200)]
    with impatient.client(job["token"]) as client:
        assert put(client, a_result(job)).status_code == 201
    for each in silent:
        each.close()


def test_a_full_disk_takes_nothing_and_leaves_nothing_half_written(served: Served, sqlite_template: Path) -> None:
    """A state folder of 6 MiB, in a mount namespace of the server's own."""
    database = served.folder / "elsewhere.db"
    database.write_bytes(sqlite_template.read_bytes())
    state = served.settings.state
    small = f"mount -t tmpfs -o size=6m none {shlex.quote(str(state))} && exec {shlex.join(COMMAND)}"
    served.settings.secrets.mkdir()
    job = served.job()  # the key that the test signs with is the server's
    key = (served.settings.secrets / "handover.key").read_text().strip()
    keep = f"mkdir -m 700 {state}/secrets && printf %s {key} >{state}/secrets/handover.key"
    served.start(
        ("unshare", "--mount", "sh", "-c", small.replace(" && exec", f" && {keep} && exec")),
        PERFCI_DATABASE_URL=f"sqlite:///{database}",
    )
    assert served.process is not None
    inside = Path(f"/proc/{served.process.pid}/root{state}")
    large, fits = sized(a_result(job), 8 * 2**20), a_result(job, 1)
    with served.client(job["token"]) as client:
        refused = put(client, large)
        assert (refused.status_code, "full" in refused.json()["error"]) == (507, True)
        assert left(inside) == []
        assert put(client, fits).status_code == 201
        assert [path.name for path in left(inside)] == [f"{job['session']}-001-{sha256_of(fits)}.perfci.json"]
        # No second place of that size is needed, and a file that is refused leaves room for the next one.
        most = sized(a_result(job, 2), 4 * 2**20)
        assert put(client, sized(a_result(job, 0), 7 * 2**20)).status_code == 507
        assert put(client, most).status_code == 201
        assert put(client, sized(a_result(job, 0), 3 * 2**20)).status_code == 507
        assert [path.stat().st_size for path in left(inside)] == [len(fits), len(most)]
        assert [each["index"] for each in client.get("/v1/artifacts").json()["artifacts"]] == [1, 2]


def left(state: Path) -> list[Path]:
    """Results and what may become one."""
    return sorted(p for p in (*state.glob("incoming/*"), *state.glob("uploads/*/*.part")))


def test_the_command_says_in_one_line_why_it_cannot_run(served: Served) -> None:
    served.start()
    second = served.command()
    assert second.communicate(timeout=60)[1].startswith(f"perfci: port {served.port} of 127.0.0.1 is in use; ")
    assert second.returncode == 2
    for setting, wrong, told in (
        ('bind = "192.0.2.7"', "192.0.2.7", "no address of this machine"),
        ('database = "postgresql://nobody@127.0.0.1:9/x"', "127.0.0.1:9", "cannot be reached"),
    ):
        before = served.config.read_text()
        served.config.write_text(before.replace("[service]\n", f"[service]\n{setting}\n"))
        process = served.command()
        problem = process.communicate(timeout=60)[1]
        served.config.write_text(before)
        assert (process.returncode, problem.count("\n")) == (2, 1)
        assert wrong in problem
        assert told in problem


def test_check_tells_whether_it_could_run_and_returns(served: Served) -> None:
    process = served.command((*COMMAND, "--check"))
    assert process.communicate(timeout=60)[0] == f"perfci serve can run at {served.url}\n"
    assert process.returncode == 0
    assert not socket_open(served.port)


def socket_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_sigterm_ends_it_after_what_is_under_way(served: Served) -> None:
    served.start()
    job = served.job()
    data = a_result(job)
    with served.connection() as connection:
        connection.sendall(request_head(job, data) + data[:-1])
        wait_for(lambda: bool(served.parts()))
        assert served.process is not None
        served.process.terminate()
        wait_for(lambda: not socket_open(served.port))
        connection.sendall(data[-1:])
        assert status_of(connection) == 201
    assert [path.read_bytes() for path in served.incoming(job)] == [data]
    try:
        served.process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        pytest.fail("it did not end")
