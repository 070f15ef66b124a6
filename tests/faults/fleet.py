"""Simulated nodes: they speak the hand-over's protocol (docs/serving.md) as real ones do, all in one process."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

TRIES = 60
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """A job with its token, and the result files that its node has for it."""

    job: dict[str, Any]
    files: tuple[Path, ...]


@dataclass(slots=True)
class Told:
    """What the nodes saw. Seconds of each request that was answered; `tried_again` counts those that were not."""

    bundles: list[float] = field(default_factory=list)
    puts: list[float] = field(default_factory=list)
    sent_bytes: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    tried_again: int = 0
    seconds: float = 0.0


def deliver(
    server: str,
    deliveries: Sequence[Delivery],
    *,
    rate: float | None = None,
    at_once: int = 50,
    keep_alive: bool = True,
) -> Told:
    """Every node fetches its bundle and hands its files over. rate: files a second of all nodes together, each at its
    moment whether or not the one before was answered; None: as fast as they are taken, `at_once` nodes at a time."""
    return asyncio.run(_deliver(server, deliveries, rate=rate, at_once=at_once, keep_alive=keep_alive))


async def _deliver(
    server: str, deliveries: Sequence[Delivery], *, rate: float | None, at_once: int, keep_alive: bool
) -> Told:
    told = Told()
    began = time.monotonic()
    limits = httpx.Limits(max_connections=max(at_once, 200), max_keepalive_connections=200 if keep_alive else 0)
    async with httpx.AsyncClient(base_url=server, timeout=TIMEOUT_S, limits=limits, trust_env=False) as client:
        free = asyncio.Semaphore(at_once)

        async def node(delivery: Delivery) -> None:
            async with free:
                await _fetch(client, delivery.job, told)
                for path in delivery.files:
                    await _put(client, delivery.job, path, told)

        async def paced(number: int, delivery: Delivery, path: Path, every: float) -> None:
            await asyncio.sleep(max(0.0, began + number * every - time.monotonic()))
            if path == delivery.files[0]:
                await _fetch(client, delivery.job, told)
            await _put(client, delivery.job, path, told)

        async with asyncio.TaskGroup() as group:
            if rate is None:
                for delivery in deliveries:
                    group.create_task(node(delivery))
            else:
                files = [(delivery, path) for delivery in deliveries for path in delivery.files]
                for number, (delivery, path) in enumerate(files):
                    group.create_task(paced(number, delivery, path, 1 / rate))
    told.seconds = time.monotonic() - began
    return told


async def _fetch(client: httpx.AsyncClient, job: dict[str, Any], told: Told) -> None:
    if "bundle" not in job:
        return
    wanted = job["bundle"]["sha256"]
    began = time.monotonic()
    answer = await client.get(f"/v1/bundles/{wanted}", headers=_bearer(job))
    answer.raise_for_status()
    assert hashlib.sha256(answer.content).hexdigest() == wanted
    told.bundles.append(time.monotonic() - began)


async def _put(client: httpx.AsyncClient, job: dict[str, Any], path: Path, told: Told) -> None:
    """Until it is accepted, as a node does: what is not final is tried again."""
    data = await asyncio.to_thread(path.read_bytes)
    digest = hashlib.sha256(data).hexdigest()
    for attempt in range(TRIES):
        began = time.monotonic()
        try:
            answer = await client.put(f"/v1/artifacts/{digest}", content=data, headers=_bearer(job))
        except httpx.TransportError:
            told.tried_again += 1
        else:
            told.puts.append(time.monotonic() - began)
            told.statuses[answer.status_code] = told.statuses.get(answer.status_code, 0) + 1
            if answer.status_code < 300:
                told.sent_bytes += len(data)
                return
            assert answer.status_code in (408, 409) or answer.status_code >= 500, answer.text
            told.tried_again += 1
        await asyncio.sleep(min(5.0, 0.1 * 1.5**attempt))
    raise AssertionError(f"{path.name} was not taken in {TRIES} tries")


def _bearer(job: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {job['token']}"}
