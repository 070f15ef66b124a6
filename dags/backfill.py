"""Commits of the past: ends of a range first, then middles where the level changed. Each step is a run of its own.

plan -> on the hardware's queue, job by job: build -> measure -> ingest -> detect -> more -> again: the next step
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Param, dag, task, task_group

from perfci import backfill, config, nightly, node, queues

SETTINGS = config.load(Path(CONFIG := str(config.find(Path.cwd()))))
PARAMS = {
    "span": Param("", type="string", description="OLDER..NEWER, two commits of the tracked branch"),
    "hardware": Param("", type="string", description="where they are measured"),
    "suite": Param("", type="string", description="empty: the only one"),
    "session": Param("", type="string", description="name of all its steps; empty: made from the time"),
    "minutes": Param(None, type=["null", "number"], description="device minutes for all of it; null: the night's"),
    "asked": Param([], type="array", items={"type": "string"}, description="commits that steps before asked for"),
    "steps": Param(backfill.STEPS, type="integer", minimum=1, description="so many are left"),
}
JOB = "{{ task.op_kwargs['job']['suite'] }} {{ task.op_kwargs['job']['sha'][:9] }}"
QUIET: Any = {"show_return_value_in_logs": False}  # jobs have tokens
PATIENCE = queues.patience(SETTINGS)
ARGS: Any = {"catchup": False, "default_args": {"retries": 1, "retry_delay": timedelta(seconds=5)}}
STEP: Any = {"map_index_template": JOB, "priority_weight": 25, "weight_rule": "absolute"}  # the same for all its jobs
NEXT = "{{ ti.xcom_pull(task_ids='plan', key='session') }}-{{ params.steps - 1 }}"
AGAIN: Any = {"logical_date": None, "trigger_run_id": NEXT, "skip_when_already_exists": True}


def device(place: queues.Place) -> Any:
    build, measure = (task(**STEP, **place.options)(step) for step in (node.build, node.measure))
    return task_group(group_id=place.name)(lambda job: build(CONFIG, job=job) >> measure(CONFIG, job=job))


@dag("backfill", schedule=None, max_active_runs=1, params=PARAMS, doc_md=__doc__, tags=["perfci"], **ARGS)
def steps() -> None:
    @task(multiple_outputs=True, **QUIET)
    def plan(params: Any = None) -> dict[str, Any]:
        return backfill.plan(CONFIG, {name: params[name] for name in PARAMS})

    planned: Any = plan()
    worked = EmptyOperator(task_id="worked", trigger_rule="none_failed")
    stored: Any = task(trigger_rule="all_done", multiple_outputs=True, **PATIENCE)(nightly.ingest)(CONFIG)
    more = task.short_circuit(task_id="more")(backfill.unfinished)(planned["next"])
    late: Any = [stored["sessions"]]
    task(**PATIENCE)(nightly.detect)(CONFIG, planned["session"], planned["jobs"], late=late) >> [worked, more]
    more >> TriggerDagRunOperator(task_id="again", trigger_dag_id="backfill", conf=planned["next"], **AGAIN)
    for place in queues.places(SETTINGS):
        jobs = task(task_id="jobs", **QUIET)(queues.waiting)(planned["jobs"], place.queue, place.devices)
        device(place).expand(job=jobs) >> [stored, worked]


steps()
