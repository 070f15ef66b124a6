"""Airflow and the dashboard as parts of one command, for one machine.

    lock.py     who may use the state folder
    home.py     AIRFLOW_HOME: settings, secrets, metadata database
    ports.py    which port, and who sits on it
    instance.py starting the components, until a DAG can be triggered
    progress.py what the terminal sees of a DAG run
    night.py    one nightly, from nothing to its outcome
    up.py       the service, until Ctrl-C

Everything listens on 127.0.0.1 alone, and everything that is started here ends with the command.
"""

from __future__ import annotations

from perfci.embedded.night import FailedTask, NightOutcome, run_nightly
from perfci.embedded.up import up

__all__ = ["FailedTask", "NightOutcome", "run_nightly", "up"]
