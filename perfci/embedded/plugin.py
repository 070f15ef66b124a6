"""A plugin of Airflow's API server, written into its home: who may speak as which node."""

from __future__ import annotations

from pathlib import Path

FILE = "perfci_nodes.py"
# Without it nobody's token is taken: the key set that Airflow trusts holds the key of `Bound` alone.
_TEXT = '''"""Written by perfci at every start: nodes speak for themselves alone."""

from pathlib import Path

from airflow.plugins_manager import AirflowPlugin

from perfci.runner.binding import Bound


class Nodes(AirflowPlugin):
    name = "perfci_nodes"
    fastapi_root_middlewares = [{{"name": "perfci nodes", "middleware": Bound, "kwargs": {{"nodes": Path({nodes!r})}}}}]
'''


def text(nodes: Path) -> str:
    """nodes: the folder of the nodes' public keys."""
    return _TEXT.format(nodes=str(nodes))
