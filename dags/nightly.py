"""Each night: measure what is new on the tracked branches, store it, and look for changes of speed.

    plan -> on each queue, job by job: build -> measure -> ingest -> detect -> worked

A failing benchmark or build is a result. A step fails where perfci itself cannot work; others go on, the run fails.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import CronTriggerTimetable, Param, dag, task, task_group

from perfci import config, measure, nightly

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
AGAIN: dict[str, Any] = {"retries": 1, "retry_delay": timedelta(seconds=5)}  # for steps that may be done twice


def on_queue(queue: str) -> Any:
    wanted = {"queue": queue, "executor": SETTINGS.service.executor, "map_index_template": JOB}
    options: dict[str, Any] = {"pool": queue or "device"} | {name: value for name, value in wanted.items() if value}

    @task_group(group_id=queue or "device")
    def device(job: dict[str, Any]) -> None:
        task(**options)(measure.build)(CONFIG, job=job) >> task(**options)(measure.measure)(CONFIG, job=job)

    return device


@dag("nightly", schedule=CRON, catchup=False, max_active_runs=1, params=PARAMS, doc_md=__doc__, tags=["perfci"])
def steps() -> None:
    @task(multiple_outputs=True)
    def plan(params: Any = None) -> dict[str, Any]:
        nightly.ingest(CONFIG)  # what a killed night has left
        return nightly.plan(CONFIG, **{name: params[name] for name in PARAMS})

    @task(task_id="jobs")
    def jobs_of(jobs: list[dict[str, Any]], queue: str) -> list[dict[str, Any]]:
        return [job for job in jobs if job["queue"] == queue]

    planned: Any = plan()
    worked = EmptyOperator(task_id="worked", trigger_rule="none_failed")
    stored = task(trigger_rule="all_done", **AGAIN)(nightly.ingest)(CONFIG)
    stored >> task(**AGAIN)(nightly.detect)(CONFIG, planned["session"]) >> worked
    for queue in sorted({rule.queue for rule in SETTINGS.hardware.values()} | {""}):
        on_queue(queue).expand(job=jobs_of(planned["jobs"], queue)) >> [stored, worked]


steps()
