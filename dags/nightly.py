"""Each night: measure what is new on the tracked branches, store it, look for changes of speed, and tell people.

    plan -> on each queue, job by job: build -> measure -> ingest -> detect -> notify -> worked

A failing benchmark or build is a result. A step fails where perfci itself cannot work; others go on, the run fails.
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import CronTriggerTimetable, Param, dag, task, task_group

from perfci import config, nightly, node, queues

SETTINGS = config.load(Path(CONFIG := str(config.find(Path.cwd()))))
CRON = CronTriggerTimetable(SETTINGS.service.schedule, timezone=SETTINGS.service.timezone, run_immediately=timedelta(0))
NAMES: Any = {"type": "array", "items": {"type": "string"}}
PARAMS = {
    "revs": Param([], **NAMES, description="revisions; none: the newest commits"),
    "last": Param(1, type="integer", minimum=1, description="how many of the newest commits, less those measured"),
    "suites": Param([], **NAMES, description="suites by name; none: all of them"),
    "hardware": Param([], **NAMES, description="hardware by name; none: all of it"),
    "session": Param(None, type=["null", "string"], description="name of the night; null: made from the time"),
}
JOB = "{{ task.op_kwargs['job']['suite'] }} {{ task.op_kwargs['job']['sha'][:9] }}"
STEP: Any = {"map_index_template": JOB, "priority_weight": 50, "weight_rule": "absolute"}  # the same for all its jobs
QUIET: Any = {"show_return_value_in_logs": False}  # jobs have tokens
PATIENCE = queues.patience(SETTINGS)
ARGS: Any = {"catchup": False, "default_args": {"retries": 1, "retry_delay": timedelta(seconds=5)}}


def device(place: queues.Place) -> Any:
    build, measure = (task(**STEP, **place.options)(step) for step in (node.build, node.measure))
    return task_group(group_id=place.name)(lambda job: build(CONFIG, job=job) >> measure(CONFIG, job=job))


@dag("nightly", schedule=CRON, max_active_runs=1, params=PARAMS, doc_md=__doc__, tags=["perfci"], **ARGS)
def steps() -> None:
    @task(multiple_outputs=True, **QUIET)
    def plan(params: Any = None, dag_run: Any = None) -> dict[str, Any]:
        late = nightly.ingest(CONFIG)["sessions"]  # what a killed night has left, or a node that was away
        asked = {name: params[name] for name in PARAMS}
        asked["session"] = asked["session"] or nightly.session_of(dag_run.run_id, dag_run.run_after)
        return nightly.plan(CONFIG, **asked, scheduled=dag_run.run_type == "scheduled") | {"late": late}

    planned: Any = plan()
    worked = EmptyOperator(task_id="worked", trigger_rule="none_failed")
    stored: Any = task(trigger_rule="all_done", multiple_outputs=True, **PATIENCE)(nightly.ingest)(CONFIG)
    late: Any = [planned["late"], stored["sessions"]]
    detected = task(**PATIENCE)(nightly.detect)(CONFIG, planned["session"], planned["jobs"], late=late)
    told = task(trigger_rule="all_done")(nightly.notify)(CONFIG, planned["session"], planned["problems"])
    stored >> detected >> [told, worked]
    for place in queues.places(SETTINGS):
        jobs = task(task_id="jobs", **QUIET)(queues.waiting)(planned["jobs"], place.queue, place.devices)
        device(place).expand(job=jobs) >> [stored, worked]


steps()
