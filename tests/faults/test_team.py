"""A team's night under real Airflow and PostgreSQL, with its parts killed and frozen in the middle of it.

Nothing lost, nothing twice, and the night completes. One team for all these nights: each must leave it able to go on.
Components of the service and the database that is down for minutes: tests/team/test_recovery.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import psutil
import psycopg
import pytest
import sqlalchemy as sa

from tests.faults.nights import ALL, MEASURE, Nights
from tests.team.place import Command, Node, Team, team, until

pytestmark = [pytest.mark.faults, pytest.mark.airflow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def _team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Team, Nights, Command]]:
    with team(tmp_path_factory.mktemp("team")) as place:
        nights = Nights(place)
        yield place, nights, place.control.start(dashboard=True)


@pytest.fixture
def place(_team: tuple[Team, Nights, Command]) -> Team:
    found, _, service = _team
    assert service.process.poll() is None, found.control.logs()
    return found


@pytest.fixture
def nights(_team: tuple[Team, Nights, Command]) -> Nights:
    return _team[1]


@pytest.fixture
def node(place: Team) -> Iterator[Node]:
    """The only one at work."""
    made = place.node("gpu-a")
    command = made.start()
    yield made
    command.end()
    made.kill_all()


def test_a_worker_killed_while_it_measures_finishes_the_job_when_it_is_back(
    place: Team, nights: Nights, node: Node
) -> None:
    night = nights.begin(sleep_s=8)
    night.measuring(node)
    node.kill_all()
    node.start(ready=False)
    assert night.ended() == ALL
    assert place.control.tasks(night.run)[MEASURE].attempt == 2


def test_a_worker_killed_between_measuring_and_handing_over_hands_over_what_it_measured(
    place: Team, nights: Nights, node: Node
) -> None:
    night = nights.begin(sleep_s=8)
    night.measuring(node)
    server = place.control.component("serve")
    server.suspend()
    measured = night.measured(node)
    node.kill_all()
    server.resume()
    node.start(ready=False)
    assert night.ended() == ALL
    kept = [path.read_bytes() for path in place.control.settings.artifacts.rglob("*.perfci.json")]
    assert all(data in kept for data in measured)


def test_the_dashboard_killed_is_started_again_and_the_night_goes_on(place: Team, nights: Nights, node: Node) -> None:
    night = nights.begin(sleep_s=4)
    night.measuring(node)
    killed = place.control.component("dashboard")
    address = next(c.laddr for c in killed.net_connections() if c.status == psutil.CONN_LISTEN)
    killed.kill()
    until(lambda: _answers(f"http://127.0.0.1:{address.port}/_stcore/health"), "the dashboard is back")
    assert night.ended() == ALL


def test_ingest_killed_in_mid_transaction_is_tried_again_and_stores_all_once(
    place: Team, nights: Nights, node: Node
) -> None:
    night = nights.begin()
    url = sa.make_url(place.control.environment["PERFCI_DATABASE_URL"]).set(drivername="postgresql")
    there = url.render_as_string(hide_password=False)
    ask = (
        "SELECT client_port FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE relation = 'measurement'::regclass AND NOT granted"
    )
    with psycopg.connect(there) as lock, psycopg.connect(there, autocommit=True) as watcher:
        lock.execute("LOCK TABLE measurement IN SHARE MODE")
        until(lambda: watcher.execute(ask).fetchone(), "ingest waits for its table", place.control.logs)
        [port] = watcher.execute(ask).fetchone() or (0,)
        _at_port(port).kill()
    assert night.ended() == ALL


def test_a_database_that_restarts_in_mid_run_costs_nothing(place: Team, nights: Nights, node: Node) -> None:
    night = nights.begin(sleep_s=8)
    night.measuring(node)
    with place.without_database():
        pass
    assert night.ended() == ALL


def test_a_worker_that_comes_back_after_its_task_was_given_to_another_adds_nothing(
    place: Team, nights: Nights, node: Node
) -> None:
    night = nights.begin(sleep_s=8)
    night.measuring(node)
    frozen = node.processes()
    for process in frozen:
        process.suspend()
    other = place.node("gpu-b")
    command = other.start()
    try:
        assert night.ended() == ALL
        assert night.nodes() == {"gpu-b"}
        for process in frozen:
            process.resume()
        # It may finish, or be told that its task is another's; either way what it measured is in nobody's way.
        place.control.wait_for_worker("gpu-a")
        until(lambda: not _measuring(node), "the old job has ended", place.control.logs)
        again = nights.begin()
        assert again.ended() == ALL
        assert night.stored() == ALL
    finally:
        command.end()
        other.kill_all()


def test_two_workers_with_one_name_are_one_and_the_other_is_told(place: Team, nights: Nights, node: Node) -> None:
    twin = place.node("gpu-twin")
    # A box that was cloned: the same name and the same key.
    for path in node.folder.glob(".perfci/**/*.pem"):
        copy = twin.folder / path.relative_to(node.folder)
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o600)
    twin.rename("gpu-a")
    second = twin.start(ready=False)
    try:
        second.wait_for("if another worker has its name, it is refused as long as that one lives")
        night = nights.begin()
        assert night.ended() == ALL
        assert {run.node for run in place.control.runs()} <= {"gpu-a", "gpu-b"}
        assert not list(twin.settings.outgoing.glob("*/*.perfci.json"))
    finally:
        second.end()
        twin.kill_all()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _at_port(port: int) -> psutil.Process:
    """Who connects from it."""
    [pid] = {c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid}
    return psutil.Process(pid)


def _measuring(node: Node) -> bool:
    return any("pytest" in " ".join(process.cmdline()) for process in node.processes())
