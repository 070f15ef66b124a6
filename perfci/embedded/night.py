"""One nightly: an Airflow, one run of its DAG, and what became of it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from perfci.airflow import Airflow, DagRun, TaskInstance
from perfci.bench import ownership
from perfci.config import Settings
from perfci.embedded import lock as locks
from perfci.embedded.instance import DAG, Instance, running_or_own
from perfci.embedded.lock import Lock
from perfci.embedded.progress import Progress, name
from perfci.embedded.standstill import Standstill
from perfci.embedded.terminal import Terminal
from perfci.errors import ServiceError

_LOG_LINES = 20
# Asking costs processor time that the measured process may want; a long step is asked about less often.
_QUICK_S, _SLOW_S = 0.5, 3.0
# The service starts a component again that has ended, or whose database was away.
_PATIENCE_S = 600.0
_DULL = frozenset({"jobs", "worked"})


@dataclass(frozen=True, slots=True)
class FailedTask:
    """A step in which perfci itself could not do its work; a benchmark that fails is no such thing."""

    task: str
    log_tail: str


@dataclass(frozen=True, slots=True)
class NightOutcome:
    """session: None when not even `plan` came to its end. started_s: from the call to the first running step."""

    ok: bool
    session: str | None
    failed: tuple[FailedTask, ...]
    run: str
    url: str
    started_s: float


def run_nightly(settings: Settings, *, conf: Mapping[str, object], echo: Callable[[str], None]) -> NightOutcome:
    """Run the nightly DAG under a real scheduler and follow it to its end.

    conf: the DAG's params (`revs`, `last`, `session`). Raises ServiceError when another nightly is at work in this
    state folder or Airflow cannot be had, KeyboardInterrupt on Ctrl-C or SIGTERM; nothing is left running then.
    """
    began = time.monotonic()

    def tell(text: str) -> None:
        echo(f"[{time.monotonic() - began:6.1f} s] {text}")

    with (
        sigterm_interrupts(),
        locks.hold(settings.state / "nightly.lock", command="perfci nightly") as lock,
        _no_worktree_left(settings),
        running_or_own(settings, lock=lock, echo=tell) as instance,
    ):
        tell(f"Airflow is ready at {instance.airflow.url}")
        for earlier in instance.airflow.unfinished(DAG):
            tell(f"{earlier.id} is at work; this night begins when it has finished")
        run = instance.airflow.trigger(DAG, conf=conf)
        try:
            return _follow(instance, run, lock=lock, tell=tell, began=began)
        except BaseException:
            if instance.borrowed:  # somebody else's Airflow goes on; this run must not
                with suppress(ServiceError):
                    instance.airflow.fail(DAG, run.id)
            raise


def _follow(instance: Instance, run: DagRun, *, lock: Lock, tell: Callable[[str], None], began: float) -> NightOutcome:
    airflow = instance.airflow
    terminal = Terminal()
    progress = Progress(instance.home.logs, run.id, DAG, tell, dull=_DULL)
    first_step_s: float | None = None
    tasks: tuple[TaskInstance, ...] = ()
    asked_at = changed_at = 0.0
    news = _News(airflow, time.monotonic(), patience_s=_PATIENCE_S if instance.borrowed else 0.0)
    standstill = Standstill(str(instance.home.log("scheduler")), asked_at=time.monotonic())
    while not run.finished:
        instance.check()
        if lock.orphaned() or terminal.gone:
            raise KeyboardInterrupt
        now = time.monotonic()
        if now - asked_at > (_QUICK_S if now - changed_at < 10 else _SLOW_S):
            run, tasks = news.since(run, tasks)
            asked_at = time.monotonic()
            if changed := progress.update(tasks):
                changed_at = asked_at
            if not instance.borrowed:  # in somebody else's Airflow the device may be at work for another run
                standstill.check(tasks, changed=changed, at=asked_at)
        if first_step_s is None and any(task.state in ("running", "success", "failed") for task in tasks):
            first_step_s = time.monotonic() - began
        progress.listen(tasks)
        time.sleep(0.1)
    tasks = airflow.task_instances(DAG, run.id)
    progress.update(tasks)
    planned = airflow.result(DAG, run.id, "plan")
    session = planned.get("session") if isinstance(planned, dict) else None
    failed = tuple(
        FailedTask(name(task), "\n".join(airflow.log(DAG, run.id, task)[-_LOG_LINES:]))
        for task in tasks
        if task.state == "failed"
    )
    return NightOutcome(
        ok=run.state == "success",
        session=str(session) if session is not None else None,
        failed=failed,
        run=run.id,
        url=airflow.url,
        started_s=first_step_s if first_step_s is not None else time.monotonic() - began,
    )


@dataclass(slots=True)
class _News:
    """What Airflow says of a run. Its silence is borne for a while."""

    airflow: Airflow
    answered_at: float
    patience_s: float

    def since(self, run: DagRun, tasks: tuple[TaskInstance, ...]) -> tuple[DagRun, tuple[TaskInstance, ...]]:
        """The run and its steps; those of before while there is no answer."""
        try:
            run, tasks = self.airflow.dag_run(DAG, run.id), self.airflow.task_instances(DAG, run.id)
        except ServiceError:
            if time.monotonic() - self.answered_at > self.patience_s:
                raise
            return run, tasks
        self.answered_at = time.monotonic()
        return run, tasks


@contextmanager
def _no_worktree_left(settings: Settings) -> Iterator[None]:
    """Neither of a night that was killed, before this one begins, nor of this one when it is."""
    ownership.prune(settings.worktrees)
    try:
        yield
    finally:
        ownership.prune(settings.worktrees)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does: by an exception, so that everything is put away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
