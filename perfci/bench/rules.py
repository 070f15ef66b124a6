"""How a step is sampled: every constant in one place, whose hash is part of each Run's `harness`.

A change of one of them may move every number at once (a warmer cache, another share of the launch), so it starts a
new segment of each history and is blamed on no commit. Standard library only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from perfci import __version__


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """Seconds unless the name says otherwise.

    A sample is the mean of a *batch* of back-to-back steps that lasts at least `batch`; a step shorter than
    `short_step` is batched by at least `short_batch_steps`. Warming up takes `warmup` and goes on until the last three
    rounds agree within the fraction `steady`, or until `warmup_limit`. Then `measured` is sampled: at least
    `least_samples`, at most `most_samples`, and never for longer than `longest` once three samples are there.
    A device's cache is flushed before each step where the working set is smaller than `flush_below` times the cache.
    """

    batch: float
    short_step: float
    short_batch_steps: int
    warmup: float
    warmup_limit: float
    steady: float
    measured: float
    least_samples: int
    most_samples: int
    longest: float
    flush_below: float


# Batches of 7 ms and more have a spread of 0.06 to 0.15 % on an H200 (single steps: 0.3 to 0.75 %). Samples of one
# process depend on each other (lag 1: 0.74), so 0.45 s is enough: more processes tell more than more samples. The
# first batch is 1 % slow, the first step after a pause up to 9 %; 0.1 s and three batches that agree end that.
CUDA = SamplingRules(
    batch=7e-3,
    short_step=1e-3,
    short_batch_steps=10,
    warmup=0.1,
    warmup_limit=1.0,
    steady=0.01,
    measured=0.45,
    least_samples=10,
    most_samples=200,
    longest=10.0,
    flush_below=2.0,
)

# A CPU is shared with the system: single steps of a millisecond and more, over two seconds, so that the median stands
# outside of an interruption. Its cache cannot be flushed in a time that anyone would wait for.
CPU = SamplingRules(
    batch=1e-3,
    short_step=1e-4,
    short_batch_steps=10,
    warmup=0.3,
    warmup_limit=1.0,
    steady=0.05,
    measured=2.0,
    least_samples=10,
    most_samples=2000,
    longest=10.0,
    flush_below=0.0,
)


def harness() -> str:
    """perfci's version and the hash of its sampling rules, e.g. `perfci/0.1.0 3f2a9c51d0`."""
    rules = json.dumps([dataclasses.asdict(CUDA), dataclasses.asdict(CPU)], sort_keys=True)
    return f"perfci/{__version__} {hashlib.sha256(rules.encode()).hexdigest()[:10]}"
