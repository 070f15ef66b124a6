"""Each night: measure what is new on the tracked branches, store it, look for changes of speed, and tell people.

    plan -> on each queue, job by job: build -> measure -> ingest -> detect -> worked

A failing benchmark or build is a result. A step fails where perfci itself cannot work; others go on, the run fails."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import CronTriggerTimetable, Param, dag, task, task_group

from perfci import config, nightly, node

CONFIG = str(config.find(Path.cwd()))
SETTINGS = config.load(Path(CONFIG))
CRON = CronTriggerTimetable(SETTINGS.service.schedule, timezone=SETTINGS.service.timezone, run_immediately=timedelta(0))
PARAMS = {
    "revs": Param([], type="array", items={"type": "string"}, description="revisions; none: the newest commits"),
    "last": Param(1, type="integer", minimum=1, description="how many of the newest commits, less those measured"),
    "suites": Param([], type="array", items={"type": "string"}, description="suites by name; none: all of them"),
    "session": Param(None, type=["null", "string"], description="name of the night; null: made from the time"),
}
JOB = "{{ task.op_kwargs['job']['suite'] }} {{ task.op_kwargs['job']['sha'][:9] }}"
ARGS: Any = {"default_args": {"retries": 1, "retry_delay": timedelta(seconds=5)}}  # every step may be done twice
STEP: dict[str, Any] = {"map_index_template": JOB, "priority_weight": 50, "weight_rule": "absolute", "retries": 0}
if SETTINGS.service.executor:  # a node may be lost with its job
    STEP |= {"executor": SETTINGS.service.executor, "retries": 2, "retry_delay": timedelta(minutes=1)}
WANTED = {(rule.queue, suite.devices) for rule in SETTINGS.hardware.values() for suite in SETTINGS.suites.values()}


def device(queue: str, devices: int) -> Any:
    place = {"pool": queue or "device", "pool_slots": devices, **({"queue": queue} if queue else {}), **STEP}
    build, measure = (task(**place)(step) for step in (node.build, node.measure))
    name = place["pool"] + (f"-x{devices}" if devices > 1 else "")
    return task_group(group_id=name)(lambda job: build(CONFIG, job=job) >> measure(CONFIG, job=job))


@dag("nightly", schedule=CRON, catchup=False, max_active_runs=1, params=PARAMS, doc_md=__doc__, tags=["perfci"], **ARGS)
def steps() -> None:
    @task(multiple_outputs=True)
    def plan(params: Any = None) -> dict[str, Any]:
        nightly.ingest(CONFIG)  # what a killed night has left
        return nightly.plan(CONFIG, **{name: params[name] for name in PARAMS})

    @task(task_id="jobs")
    def jobs_of(jobs: list[dict[str, Any]], queue: str, devices: int) -> list[dict[str, Any]]:
        return [job for job in jobs if job["queue"] == queue and (not queue or job["devices"] == devices)]

    planned: Any = plan()
    worked = EmptyOperator(task_id="worked", trigger_rule="none_failed")
    stored = task(trigger_rule="all_done")(nightly.ingest)(CONFIG)
    stored >> task()(nightly.detect)(CONFIG, planned["session"]) >> worked
    for queue, devices in [("", 1), *sorted(wanted for wanted in WANTED if wanted[0])]:
        device(queue, devices).expand(job=jobs_of(planned["jobs"], queue, devices)) >> [stored, worked]


steps()
