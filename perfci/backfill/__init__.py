"""Commits of the past, measured afterwards: the ends of a range first, then the middle of each stretch over which the
level changed, until every change lies between two neighbours.

What comes next depends on what was found, so a backfill is a chain of steps: `plan`, build and measure its jobs,
ingest, and plan again with what the plan gave as "next". Commits that leave the suite's files as they were are never
measured.
"""

from perfci.backfill.step import STEPS, Request, estimated, plan, unfinished

__all__ = ["STEPS", "Request", "estimated", "plan", "unfinished"]
