"""Reads the DAG folder as Airflow does and prints what it found as JSON: `python facts.py FOLDER`.

A process of its own, because importing Airflow changes logging and warnings for everything after it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from airflow.dag_processing.dagbag import DagBag


def main(folder: Path) -> None:
    before = set(sys.modules)
    began = time.process_time()
    bag = DagBag(folder)
    facts = {
        "seconds": time.process_time() - began,
        "import_errors": bag.import_errors,
        "modules": sorted(set(sys.modules) - before),
        "dags": {dag.dag_id: of_dag(dag) for dag in bag.dags.values()},
    }
    print(json.dumps(facts))


def of_dag(dag: Any) -> dict[str, Any]:
    return {
        "doc": dag.doc_md or "",
        "tags": sorted(dag.tags),
        "max_active_runs": dag.max_active_runs,
        "dagrun_timeout": str(dag.dagrun_timeout),
        "catchup": dag.catchup,
        "params": {name: dag.params.get_param(name).schema for name in dag.params},
        "schedule": str(dag.timetable),
        "tasks": {task.task_id: of_task(task) for task in dag.tasks},
    }


def of_task(task: Any) -> dict[str, Any]:
    return {
        "upstream": sorted(task.upstream_task_ids),
        "pool": task.pool,
        "pool_slots": task.pool_slots,
        "priority_weight": task.priority_weight,
        "weight_rule": str(task.weight_rule),
        "queue": task.queue,
        "executor": task.executor,
        "retries": task.retries,
        "retry_delay_s": task.retry_delay.total_seconds(),
        "execution_timeout": str(task.execution_timeout),
        "trigger_rule": task.trigger_rule.value,
        "mapped": next(task.iter_mapped_task_groups(), None) is not None,
        "map_index_template": task.map_index_template,
    }


main(Path(sys.argv[1]))
