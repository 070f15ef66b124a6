"""The projections as streams: few programs, whose next tiles of weights are on their way through shared memory.

The same operations as in operations.py, under the same rules for programmatic dependent launch. There a program holds
the tile at hand and the next one in registers. Here a ring of STAGES tiles in shared memory is filled by asynchronous
copies, which take no registers, so that programs of two kernels fit on a multiprocessor side by side, and the later
one has its ring full when the earlier one is done. Triton's loop pipelining makes the ring: it starts the first
STAGES - 1 loads of weights before the loop, hence before the wait that stands in the first pass. Loads that depend on
an earlier kernel must therefore not be pipelined: they stand inside an `if`, which Triton does not move
(tests/kernels/test_streamed.py looks at the compiled order).
"""

import triton
import triton.language as tl

from kernels.llama.program import finish, start, wait


@triton.jit
def stream_qkv(
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
    PROGRAMS: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """operations.project_qkv, a program making TILES tiles of ROWS pairs, PROGRAMS tiles apart. Grid: PROGRAMS.

    x float32 [D]; weight [(QUERY_HEADS + 2 KV_HEADS) HD, D]; query float32 [QUERY_HEADS, HD]; keys, values
    [KV_HEADS, C, HD]. Traffic: rows x D W bytes.
    """
    begin = start(PDL, TRACE)
    end = begin
    HALF: tl.constexpr = HD // 2
    TILES_A_HEAD: tl.constexpr = HALF // ROWS
    HEADS: tl.constexpr = QUERY_HEADS + 2 * KV_HEADS
    columns = tl.arange(0, D)
    position = tl.load(position_ptr)
    norm = tl.load(norm_ptr + columns).to(tl.float32)
    normed = norm
    for tile in tl.range(0, TILES, num_stages=STAGES):
        index = tl.program_id(0) + tile * PROGRAMS
        head = index // TILES_A_HEAD
        pair = (index % TILES_A_HEAD) * ROWS + tl.arange(0, ROWS)
        rows = (head * HD + pair)[:, None] * D + columns[None, :]
        there = (pair < HALF) & (head < HEADS)
        weight_first = tl.load(weight_ptr + rows, mask=there[:, None], other=0.0)
        weight_second = tl.load(weight_ptr + rows + HALF * D, mask=there[:, None], other=0.0)
        if tile == 0:
            begin, end = wait(begin, PDL, TRACE)
            x = tl.load(x_ptr + columns)
            normed = x * tl.rsqrt(tl.sum(x * x) / D + EPSILON) * norm
        first = tl.sum(weight_first.to(tl.float32) * normed[None, :], 1)
        second = tl.sum(weight_second.to(tl.float32) * normed[None, :], 1)
        if head < QUERY_HEADS + KV_HEADS:
            cosine = tl.load(cosine_ptr + position * HALF + pair)
            sine = tl.load(sine_ptr + position * HALF + pair)
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
        elif head < HEADS:
            row = values_ptr + ((head - QUERY_HEADS - KV_HEADS) * CONTEXT + position) * HD + pair
            tl.store(row, first.to(values_ptr.dtype.element_ty))
            tl.store(row + HALF, second.to(values_ptr.dtype.element_ty))
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def stream_and_add(
    input_ptr,
    weight_ptr,
    x_ptr,
    D: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """operations.project_and_add: x += weight @ input, float32 [K] -> float32 [D], weight [D, K]. Grid: PROGRAMS.

    Traffic: D K W bytes.
    """
    begin = start(PDL, TRACE)
    end = begin
    columns = tl.arange(0, K)
    vector = tl.zeros((K,), tl.float32)
    for tile in tl.range(0, TILES, num_stages=STAGES):
        first = (tl.program_id(0) + tile * PROGRAMS) * ROWS
        rows = first + tl.arange(0, ROWS)
        weight = tl.load(weight_ptr + rows[:, None] * K + columns[None, :], mask=(rows < D)[:, None], other=0.0)
        if tile == 0:
            begin, end = wait(begin, PDL, TRACE)
            vector = tl.load(input_ptr + columns)
        if first < D:
            before = tl.load(x_ptr + rows, mask=rows < D, other=0.0)
            tl.store(x_ptr + rows, before + tl.sum(weight.to(tl.float32) * vector[None, :], 1), mask=rows < D)
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def stream_merge_and_add(
    parts_ptr,
    peaks_ptr,
    totals_ptr,
    weight_ptr,
    x_ptr,
    D: tl.constexpr,
    QUERY_HEADS: tl.constexpr,
    HD: tl.constexpr,
    SPLITS: tl.constexpr,
    ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """stream_and_add of what split_attention.merge_splits would make of the parts; each program merges them all.

    Arrays as split_attention.attend_split leaves them; weight [D, QUERY_HEADS HD]. Traffic: D QUERY_HEADS HD W bytes.
    """
    begin = start(PDL, TRACE)
    end = begin
    K: tl.constexpr = QUERY_HEADS * HD
    columns = tl.arange(0, K)
    heads = tl.arange(0, QUERY_HEADS)
    cells = heads[:, None] * HD + tl.arange(0, HD)[None, :]
    vector = tl.zeros((K,), tl.float32)
    for tile in tl.range(0, TILES, num_stages=STAGES):
        first = (tl.program_id(0) + tile * PROGRAMS) * ROWS
        rows = first + tl.arange(0, ROWS)
        weight = tl.load(weight_ptr + rows[:, None] * K + columns[None, :], mask=(rows < D)[:, None], other=0.0)
        if tile == 0:
            begin, end = wait(begin, PDL, TRACE)
            peak = tl.load(peaks_ptr + heads)
            for split in tl.static_range(1, SPLITS):
                peak = tl.maximum(peak, tl.load(peaks_ptr + split * QUERY_HEADS + heads))
            total = tl.zeros((QUERY_HEADS,), tl.float32)
            merged = tl.zeros((QUERY_HEADS, HD), tl.float32)
            for split in tl.static_range(SPLITS):
                scale = tl.exp2(tl.load(peaks_ptr + split * QUERY_HEADS + heads) - peak)
                total += scale * tl.load(totals_ptr + split * QUERY_HEADS + heads)
                merged += scale[:, None] * tl.load(parts_ptr + split * K + cells)
            vector = tl.reshape(merged / total[:, None], (K,))
        if first < D:
            before = tl.load(x_ptr + rows, mask=rows < D, other=0.0)
            tl.store(x_ptr + rows, before + tl.sum(weight.to(tl.float32) * vector[None, :], 1), mask=rows < D)
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def stream_gate_up(
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
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """operations.project_gate_up: hidden = silu(g) * u, float32 [D] -> float32 [F], weight [2 F, D]. Grid: PROGRAMS.

    Traffic: 2 F D W bytes.
    """
    begin = start(PDL, TRACE)
    end = begin
    columns = tl.arange(0, D)
    norm = tl.load(norm_ptr + columns).to(tl.float32)
    normed = norm
    for tile in tl.range(0, TILES, num_stages=STAGES):
        rows = (tl.program_id(0) + tile * PROGRAMS) * ROWS + tl.arange(0, ROWS)
        cells = weight_ptr + rows[:, None] * D + columns[None, :]
        gate_weight = tl.load(cells, mask=(rows < F)[:, None], other=0.0)
        up_weight = tl.load(cells + F * D, mask=(rows < F)[:, None], other=0.0)
        if tile == 0:
            begin, end = wait(begin, PDL, TRACE)
            x = tl.load(x_ptr + columns)
            normed = x * tl.rsqrt(tl.sum(x * x) / D + EPSILON) * norm
        gate = tl.sum(gate_weight.to(tl.float32) * normed[None, :], 1)
        up = tl.sum(up_weight.to(tl.float32) * normed[None, :], 1)
        tl.store(hidden_ptr + rows, gate * tl.sigmoid(gate) * up, mask=rows < F)
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def stream_head(
    x_ptr,
    norm_ptr,
    embedding_ptr,
    logits_ptr,
    best_ptr,
    best_row_ptr,
    D: tl.constexpr,
    V: tl.constexpr,
    EPSILON: tl.constexpr,
    ROWS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TILES: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """operations.project_head: logits float32 [V], embedding [V, D]; and each program's best logit and its lowest row.

    best float32 [PROGRAMS], best_row int32 [PROGRAMS]. Grid: PROGRAMS. Traffic: V D W + 4 V bytes.
    """
    begin = start(PDL, TRACE)
    end = begin
    columns = tl.arange(0, D)
    norm = tl.load(norm_ptr + columns).to(tl.float32)
    normed = norm
    best = tl.full((ROWS,), -float("inf"), tl.float32)
    best_rows = tl.full((ROWS,), V, tl.int32)
    for tile in tl.range(0, TILES, num_stages=STAGES):
        rows = (tl.program_id(0) + tile * PROGRAMS) * ROWS + tl.arange(0, ROWS)
        cells = embedding_ptr + rows[:, None].to(tl.int64) * D + columns[None, :]
        weight = tl.load(cells, mask=(rows < V)[:, None], other=0.0)
        if tile == 0:
            begin, end = wait(begin, PDL, TRACE)
            x = tl.load(x_ptr + columns)
            normed = x * tl.rsqrt(tl.sum(x * x) / D + EPSILON) * norm
        logits = tl.sum(weight.to(tl.float32) * normed[None, :], 1)
        tl.store(logits_ptr + rows, logits, mask=rows < V)
        better = (logits > best) & (rows < V)
        best = tl.where(better, logits, best)
        best_rows = tl.where(better, rows, best_rows)
    greatest = tl.max(best, 0)
    tl.store(best_ptr + tl.program_id(0), greatest)
    tl.store(best_row_ptr + tl.program_id(0), tl.min(tl.where(best == greatest, best_rows, V), 0))
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def pick_lowest(
    best_ptr,
    best_row_ptr,
    token_ptr,
    V: tl.constexpr,
    COUNT: tl.constexpr,
    WIDTH: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """operations.pick for programs whose rows interleave: the lowest row among equals, not the first program's.

    One program. Traffic: 8 COUNT bytes, from the L2.
    """
    begin = start(PDL, TRACE)
    entries = tl.arange(0, WIDTH)
    begin, end = wait(begin, PDL, TRACE)
    best = tl.load(best_ptr + entries, mask=entries < COUNT, other=-float("inf"))
    rows = tl.load(best_row_ptr + entries, mask=entries < COUNT, other=V)
    tl.store(token_ptr, tl.min(tl.where(best == tl.max(best, 0), rows, V), 0).to(tl.int64))
    finish(trace_ptr, begin, end, TRACE)
