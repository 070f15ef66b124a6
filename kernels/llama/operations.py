"""The Triton kernels of a modular decode step: one operation each, batch 1, float32 accumulation.

Shapes below are Llama's: D hidden, HD head width, F feed-forward width, V vocabulary, C context; W is the
size in bytes of a weight. Activations are float32, weights and caches bf16 (float32 in the interpreter,
which truncates bf16). Each output element is owned by one program that sums in one fixed order: the
same bits on every launch, no atomics. A step's traffic is its weights; activations stay in the L2.

Programmatic dependent launch (`PDL`, Hopper and newer): a kernel allows the next one to start at once
(`gdc_launch_dependents`), loads what no earlier kernel of the step writes (weights, position, the keys and values
of earlier positions), and only then waits for its predecessor to finish (`gdc_wait`). Rules kept here, since the
hardware checks none: every program of every kernel waits, so "the predecessor has finished" holds for all before
it too; nothing is stored before the wait; no load that depends on an earlier kernel stands before it.
`PDL` is a constexpr because the interpreter cannot run the two instructions and older devices lack them.

Several steps follow each other under the same rules, with one addition: the embedding of a further step (`FED`) lets
the next kernel start only when its own wait is over, that is, when the whole step before is done. So whatever runs
later may load early what earlier steps have appended to keys and values.

The caches are told what to keep: a step reads each weight once, so weights go first (`evict_first`); the keys and
values that attention loads before its wait (17 MB in all layers at 512 positions of Llama 3.2 1B) fit in the L2 until
the next step reads them again, so they go last (`evict_last`).

`TRACE` and `trace_ptr`: see program.py. The interpreter has no clock.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from kernels.llama.program import finish, start, wait


@triton.jit
def _normalized(x_ptr, norm, columns, D: tl.constexpr, EPSILON: tl.constexpr):
    """x / sqrt(mean(x^2) + epsilon) * norm over a whole row of D, float32. Every program recomputes it: 4 D bytes."""
    x = tl.load(x_ptr + columns)
    return x * tl.rsqrt(tl.sum(x * x) / D + EPSILON) * norm


@triton.jit
def embed(
    token_ptr,
    embedding_ptr,
    x_ptr,
    D: tl.constexpr,
    PDL: tl.constexpr,
    FED: tl.constexpr = False,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """x = embedding[token]: [V, D] -> float32 [D]. One program. Traffic: D W bytes. First of a step.

    token int64. FED: the kernel before this one picked it.
    """
    begin = start(PDL and not FED, TRACE)
    columns = tl.arange(0, D)
    if not FED:
        token = tl.load(token_ptr)
    begin, end = wait(begin, PDL, TRACE)
    if FED:
        if PDL:
            gdc_launch_dependents()
        token = tl.load(token_ptr)
    tl.store(x_ptr + columns, tl.load(embedding_ptr + token * D + columns).to(tl.float32))
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def project_qkv(
    x_ptr,
    norm_ptr,
    weight_ptr,
    cosine_ptr,
    sine_ptr,
    position_ptr,
    query_ptr,
    keys_ptr,
    values_ptr,
    D: tl.constexpr,
    QUERY_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HD: tl.constexpr,
    CONTEXT: tl.constexpr,
    EPSILON: tl.constexpr,
    ROWS: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """q, k, v = rope(weight @ rmsnorm(x)); k and v go to the caches at `position`.

    x float32 [D]; weight [(QUERY_HEADS + 2 KV_HEADS) HD, D]; query float32 [QUERY_HEADS, HD];
    keys, values [KV_HEADS, C, HD]. A program makes ROWS pairs (i, i + HD / 2) of one head: the two that a
    rotation mixes. Grid: heads x HD / 2 / ROWS. Traffic: rows x D W bytes.
    """
    begin = start(PDL, TRACE)
    HALF: tl.constexpr = HD // 2
    TILES: tl.constexpr = HALF // ROWS
    head = tl.program_id(0) // TILES
    pair = (tl.program_id(0) % TILES) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, D)
    rows = weight_ptr + (head * HD + pair)[:, None] * D + columns[None, :]
    weight_first = tl.load(rows, eviction_policy="evict_first")
    weight_second = tl.load(rows + HALF * D, eviction_policy="evict_first")
    norm = tl.load(norm_ptr + columns).to(tl.float32)
    position = tl.load(position_ptr)
    cosine = tl.load(cosine_ptr + position * HALF + pair)
    sine = tl.load(sine_ptr + position * HALF + pair)
    begin, end = wait(begin, PDL, TRACE)
    normed = _normalized(x_ptr, norm, columns, D, EPSILON)
    first = tl.sum(weight_first.to(tl.float32) * normed[None, :], 1)
    second = tl.sum(weight_second.to(tl.float32) * normed[None, :], 1)
    if head < QUERY_HEADS + KV_HEADS:
        rotated = first * cosine - second * sine
        second = second * cosine + first * sine
        first = rotated
    if head < QUERY_HEADS:
        tl.store(query_ptr + head * HD + pair, first)
        tl.store(query_ptr + head * HD + HALF + pair, second)
    elif head < QUERY_HEADS + KV_HEADS:
        row = keys_ptr + ((head - QUERY_HEADS) * CONTEXT + position) * HD + pair
        tl.store(row, first.to(keys_ptr.dtype.element_ty))
        tl.store(row + HALF, second.to(keys_ptr.dtype.element_ty))
    else:
        row = values_ptr + ((head - QUERY_HEADS - KV_HEADS) * CONTEXT + position) * HD + pair
        tl.store(row, first.to(values_ptr.dtype.element_ty))
        tl.store(row + HALF, second.to(values_ptr.dtype.element_ty))
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def attend(
    query_ptr,
    keys_ptr,
    values_ptr,
    position_ptr,
    attended_ptr,
    QUERY_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HD: tl.constexpr,
    CONTEXT: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """attended = softmax(q k^T / sqrt(HD)) v over positions 0 .. `position`, one program a query head.

    query, attended float32 [QUERY_HEADS, HD]; keys, values [KV_HEADS, C, HD]. Softmax in base 2. Any position
    below C. The first BLOCK earlier positions are in registers before the wait: nothing in this step writes
    them, and the row that it does write, its own, is read after the wait and merged. A context longer than
    that goes on in blocks, with the softmax online (Milakov and Gimelshein 2018; Dao et al. 2022).
    Traffic: 2 KV_HEADS (position + 1) HD W bytes from memory; the heads of a group share it in the L2.
    """
    begin = start(PDL, TRACE)
    head = tl.program_id(0)
    kv_head = head // (QUERY_HEADS // KV_HEADS)
    keys_ptr += kv_head * CONTEXT * HD
    values_ptr += kv_head * CONTEXT * HD
    columns = tl.arange(0, HD)
    offsets = tl.arange(0, BLOCK)
    cells = offsets[:, None] * HD + columns[None, :]
    position = tl.load(position_ptr)
    there = offsets < position
    keys = tl.load(keys_ptr + cells, eviction_policy="evict_last", mask=there[:, None], other=0.0)
    values = tl.load(values_ptr + cells, eviction_policy="evict_last", mask=there[:, None], other=0.0)
    begin, end = wait(begin, PDL, TRACE)
    LOG2_E: tl.constexpr = 1.4426950408889634
    query = tl.load(query_ptr + head * HD + columns) * (LOG2_E / (HD**0.5))
    own_key = tl.load(keys_ptr + position * HD + columns).to(tl.float32)
    own_value = tl.load(values_ptr + position * HD + columns).to(tl.float32)
    scores = tl.where(there, tl.sum(keys.to(tl.float32) * query[None, :], 1), -1.0e30)
    own_score = tl.sum(own_key * query, 0)
    greatest = tl.maximum(tl.max(scores, 0), own_score)
    shares = tl.exp2(scores - greatest)
    own_share = tl.exp2(own_score - greatest)
    total = tl.sum(shares, 0) + own_share
    weighted = tl.sum(shares[:, None] * values.to(tl.float32), 0) + own_share * own_value
    if CONTEXT - 1 > BLOCK:
        for block in range(BLOCK, position, BLOCK):
            there = block + offsets < position
            keys = tl.load(keys_ptr + block * HD + cells, mask=there[:, None], other=0.0)
            values = tl.load(values_ptr + block * HD + cells, mask=there[:, None], other=0.0)
            scores = tl.where(there, tl.sum(keys.to(tl.float32) * query[None, :], 1), -1.0e30)
            raised = tl.maximum(greatest, tl.max(scores, 0))
            shrink = tl.exp2(greatest - raised)
            shares = tl.exp2(scores - raised)
            total = total * shrink + tl.sum(shares, 0)
            weighted = weighted * shrink + tl.sum(shares[:, None] * values.to(tl.float32), 0)
            greatest = raised
    tl.store(attended_ptr + head * HD + columns, weighted / total)
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def project_and_add(
    input_ptr,
    weight_ptr,
    x_ptr,
    D: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TILES: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """x += weight @ input: float32 [K] -> float32 [D], weight [D, K]. The output and the down projection.

    A program walks over TILES tiles of ROWS rows, PROGRAMS tiles apart; each row is one pass over K. The first
    tile's weights are in registers before the wait, each further tile's before the one at hand is summed.
    Grid: PROGRAMS. Traffic: D K W bytes.
    """
    begin = start(PDL, TRACE)
    columns = tl.arange(0, K)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    weight = tl.load(weight_ptr + rows[:, None] * K + columns[None, :], eviction_policy="evict_first")
    begin, end = wait(begin, PDL, TRACE)
    vector = tl.load(input_ptr + columns)
    for tile in tl.static_range(TILES):
        ahead = weight
        if tile + 1 < TILES:
            next_rows = rows + (tile + 1) * PROGRAMS * ROWS
            cells = weight_ptr + next_rows[:, None] * K + columns[None, :]
            ahead = tl.load(cells, mask=(next_rows < D)[:, None], other=0.0, eviction_policy="evict_first")
        these = rows + tile * PROGRAMS * ROWS
        before = tl.load(x_ptr + these, mask=these < D, other=0.0)
        tl.store(x_ptr + these, before + tl.sum(weight.to(tl.float32) * vector[None, :], 1), mask=these < D)
        weight = ahead
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def project_gate_up(
    x_ptr,
    norm_ptr,
    weight_ptr,
    hidden_ptr,
    D: tl.constexpr,
    F: tl.constexpr,
    EPSILON: tl.constexpr,
    ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TILES: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """hidden = silu(g) * u with g, u = weight @ rmsnorm(x): float32 [D] -> float32 [F], weight [2 F, D].

    A program walks over TILES tiles of ROWS gates and their ups, PROGRAMS tiles apart, and loads each tile's
    weights before the one at hand is summed, the first's before the wait. Grid: PROGRAMS. Traffic: 2 F D W bytes.
    """
    begin = start(PDL, TRACE)
    columns = tl.arange(0, D)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cells = weight_ptr + rows[:, None] * D + columns[None, :]
    gate_weight = tl.load(cells, eviction_policy="evict_first")
    up_weight = tl.load(cells + F * D, eviction_policy="evict_first")
    norm = tl.load(norm_ptr + columns).to(tl.float32)
    begin, end = wait(begin, PDL, TRACE)
    normed = _normalized(x_ptr, norm, columns, D, EPSILON)
    for tile in tl.static_range(TILES):
        gate_ahead = gate_weight
        up_ahead = up_weight
        if tile + 1 < TILES:
            next_rows = rows + (tile + 1) * PROGRAMS * ROWS
            cells = weight_ptr + next_rows[:, None] * D + columns[None, :]
            gate_ahead = tl.load(cells, mask=(next_rows < F)[:, None], other=0.0, eviction_policy="evict_first")
            up_ahead = tl.load(cells + F * D, mask=(next_rows < F)[:, None], other=0.0, eviction_policy="evict_first")
        these = rows + tile * PROGRAMS * ROWS
        gate = tl.sum(gate_weight.to(tl.float32) * normed[None, :], 1)
        up = tl.sum(up_weight.to(tl.float32) * normed[None, :], 1)
        tl.store(hidden_ptr + these, gate * tl.sigmoid(gate) * up, mask=these < F)
        gate_weight = gate_ahead
        up_weight = up_ahead
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def project_head(
    x_ptr,
    norm_ptr,
    embedding_ptr,
    logits_ptr,
    best_ptr,
    best_row_ptr,
    D: tl.constexpr,
    EPSILON: tl.constexpr,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """logits = embedding @ rmsnorm(x): float32 [D] -> float32 [V], embedding [V, D]; and each program's best.

    A program makes TILES tiles of ROWS rows; the next tile is loaded before the present one is summed.
    best float32 [grid], best_row int32 [grid]. Grid: V / (ROWS TILES). Traffic: V D W + 4 V bytes.
    """
    begin = start(PDL, TRACE)
    columns = tl.arange(0, D)
    norm = tl.load(norm_ptr + columns).to(tl.float32)
    rows = tl.program_id(0) * (ROWS * TILES) + tl.arange(0, ROWS)
    cells = embedding_ptr + rows[:, None].to(tl.int64) * D + columns[None, :]
    weight = tl.load(cells, eviction_policy="evict_first")
    begin, end = wait(begin, PDL, TRACE)
    normed = _normalized(x_ptr, norm, columns, D, EPSILON)
    best = -float("inf")
    best_row = 0
    for tile in tl.static_range(TILES):
        ahead = weight
        if tile + 1 < TILES:
            ahead = tl.load(cells + (tile + 1) * ROWS * D, eviction_policy="evict_first")
        logits = tl.sum(weight.to(tl.float32) * normed[None, :], 1)
        tl.store(logits_ptr + rows + tile * ROWS, logits)
        tile_best, row = tl.max(logits, 0, return_indices=True)
        best_row = tl.where(tile_best > best, tl.program_id(0) * (ROWS * TILES) + tile * ROWS + row, best_row)
        best = tl.maximum(tile_best, best)
        weight = ahead
    tl.store(best_ptr + tl.program_id(0), best)
    tl.store(best_row_ptr + tl.program_id(0), best_row)
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def pick(
    best_ptr,
    best_row_ptr,
    token_ptr,
    COUNT: tl.constexpr,
    WIDTH: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """token = lowest row of the greatest logit, out of the COUNT programs' best; WIDTH is the next power of two.

    One program. Traffic: 8 COUNT bytes, from the L2. Last of a step.
    """
    begin = start(PDL, TRACE)
    entries = tl.arange(0, WIDTH)
    begin, end = wait(begin, PDL, TRACE)
    best = tl.load(best_ptr + entries, mask=entries < COUNT, other=-float("inf"))
    _, winner = tl.max(best, 0, return_indices=True)
    tl.store(token_ptr, tl.load(best_row_ptr + winner).to(tl.int64))
    finish(trace_ptr, begin, end, TRACE)
