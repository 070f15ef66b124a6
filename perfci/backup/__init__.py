"""The whole database in one file, and back: from SQLite to PostgreSQL too, and from an older schema to the newest.

A backup is a tar of JSON lines (docs/keeping.md): people's decisions, what the repository said of commits, all
measurements, and the result files where they are asked for. Secrets are not in it.
"""

from __future__ import annotations

from perfci.backup.restoring import Restored, restore
from perfci.backup.taking import Taken, take

__all__ = ["Restored", "Taken", "restore", "take"]
