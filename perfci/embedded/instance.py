"""An Airflow that is ready to be used: the one that runs in this state folder already, or one of our own."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from perfci import queues
from perfci.airflow import Airflow
from perfci.config import Settings
from perfci.embedded import home as homes
from perfci.embedded import lock as locks
from perfci.embedded import metadata, options, ports, schedule
from perfci.embedded.home import USER, Home
from perfci.embedded.lock import Busy, Holder, Lock
from perfci.errors import ServiceError
from perfci.supervisor import Tree, sweep

DAG = "nightly"
UP = "perfci up"
# Importing Airflow alone takes ten seconds of processor time; a loaded machine may need ten times that.
_START_LIMIT_S = 240.0
# Idle components end well within this. A step that is at work does not: Airflow's tasks live on after SIGTERM, and the
# database takes no harm from SIGKILL.
_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Instance:
    """owner: tree of this command's own processes, or the other command that has them."""

    airflow: Airflow
    home: Home
    owner: Tree | Holder

    @property
    def borrowed(self) -> bool:
        return isinstance(self.owner, Holder)

    def check(self) -> None:
        """Raises ServiceError when a component is gone."""
        if isinstance(self.owner, Tree):
            self.owner.check()
        elif not self.owner.present:
            raise ServiceError(
                f"{self.owner} has ended meanwhile", next_step="start it again, or let perfci use its own"
            )


@contextmanager
def running_or_own(settings: Settings, *, lock: Lock, echo: Callable[[str], None]) -> Iterator[Instance]:
    """For a command that needs Airflow for a while. `lock` is its own, kept as long as a process of it lives."""
    home = homes.of(settings)
    with ExitStack() as stack:
        held = _hold_or_holder(settings, lock.holder.command, stack)
        if isinstance(held, Holder):
            echo(f"using the Airflow of {held}: {held.url}")
            airflow = stack.enter_context(Airflow(held.url, user=USER, password=home.password()))
            _wait_for_dag(airflow, since=None, check=lambda: None)
            yield Instance(airflow, home, held)
            return
        if options.is_edge(settings.service):
            raise ServiceError("nodes take their jobs from the service alone", next_step="start it: perfci up")
        tree = stack.enter_context(tree_of(home, keep=(lock.descriptor, held.descriptor)))
        airflow = stack.enter_context(start(settings, home, tree, port=ports.free(), scheduled=False, echo=echo))
        yield Instance(airflow, home, tree)


@contextmanager
def own(settings: Settings, *, echo: Callable[[str], None]) -> Iterator[Instance]:
    """For the service: on the address and the port of the settings, with the schedule."""
    home = homes.of(settings)
    bind = settings.service.bind
    ports.check_address(bind)
    port = ports.wanted(settings.service.airflow_port, setting="service.airflow_port", address=bind)
    with ExitStack() as stack:
        held = stack.enter_context(_hold(settings, UP))
        tree = stack.enter_context(tree_of(home, keep=(held.descriptor,)))
        airflow = stack.enter_context(start(settings, home, tree, port=port, scheduled=True, echo=echo))
        held.tell(dataclasses.replace(held.holder, url=airflow.url))
        yield Instance(airflow, home, tree)


def tree_of(home: Home, *, keep: tuple[int, ...]) -> Tree:
    """After what an earlier tree has left behind is gone."""
    sweep(home.mark)
    try:
        home.logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(f"{home.logs}: {error.strerror}", next_step="make room and make it writable") from error
    return Tree(home.mark, log=home.log("supervisor"), keep=keep, grace_s=_GRACE_S)


@contextmanager
def start(
    settings: Settings, home: Home, tree: Tree, *, port: int, scheduled: bool, echo: Callable[[str], None]
) -> Iterator[Airflow]:
    """Raises ServiceError when a component ends or the DAG cannot be had."""
    schedule.check(settings.service)
    options.write(settings, home, port=port, scheduled=scheduled)
    if metadata.needs_migration(home):
        echo("making Airflow's own database (first start)")
        metadata.migrate(home, tree)
    echo(f"starting Airflow in {home.folder}")
    since = datetime.now(UTC)
    # On nodes a run goes on while nobody is here; what ran on this machine has ended with its Airflow.
    leftovers = not options.is_edge(settings.service) and metadata.has_unfinished_runs(home)
    tree.start(home.program("api-server"))
    tree.start(home.program("dag-processor"))
    if not leftovers:
        tree.start(home.program("scheduler", "--skip-serve-logs"))
    url = options.reached_at(settings.service.bind, port)
    with Airflow(url, user=USER, password=home.password()) as airflow:
        _wait(airflow.alive, "Airflow's API server", tree.check)
        if leftovers:
            # Before there is a scheduler that would take them up again beside the new run.
            for run in airflow.unfinished(DAG):
                airflow.fail(DAG, run.id)
                echo(f"{run.id} was interrupted earlier and is marked failed")
            tree.start(home.program("scheduler", "--skip-serve-logs"))
        for pool, slots in queues.slots(settings).items():
            airflow.set_pool(pool, slots=slots, description="So many devices: a job takes as many as it needs")
        _wait_for_dag(airflow, since=since, check=tree.check)
        yield airflow


def _hold(settings: Settings, command: str) -> AbstractContextManager[Lock]:
    return locks.hold(settings.state / "airflow.lock", command=command)


def _hold_or_holder(settings: Settings, command: str, stack: ExitStack) -> Lock | Holder:
    """The lock, or the service that has it, once that is ready to be used."""
    until = time.monotonic() + _START_LIMIT_S
    while True:
        try:
            return stack.enter_context(_hold(settings, command))
        except Busy as busy:
            if busy.holder.command != UP or time.monotonic() > until:
                raise
            if busy.holder.url:
                return busy.holder
        time.sleep(0.5)


def _wait_for_dag(airflow: Airflow, *, since: datetime | None, check: Callable[[], None]) -> None:
    """Until the DAG of this start is known, not that of an earlier one."""
    _wait(lambda: airflow.has_dag(DAG, since=since), f"the DAG {DAG!r}", check)
    airflow.unpause(DAG)


def _wait(ready: Callable[[], bool], what: str, check: Callable[[], None]) -> None:
    until = time.monotonic() + _START_LIMIT_S
    while not ready():
        check()
        if time.monotonic() > until:
            raise ServiceError(
                f"{what} was not there after {_START_LIMIT_S:g} s", next_step="read the logs in .perfci/airflow/logs"
            )
        time.sleep(0.1)
