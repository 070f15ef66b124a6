"""The Triton kernels of a modular decode step of several sequences: the weights are read once for all of them.

Shapes below are Llama's: B sequences, D hidden, HD head width, F feed-forward width, V vocabulary, C context, K the
inner width of a projection; W is the size in bytes of a weight. A projection is [rows, K] x [K, B] on tensor cores
with float32 sums: a tile of weights is the left operand, the sequences are the right one, padded to N columns. The
operands are in the weights' format, so activations are rounded to it where a projection reads them (and query and
shares in attention, `batched_attention`); the residual, the sums, norms and softmax stay float32.

A norm costs no launch and no pass of its own: x * norm is stored rounded, and 1 / sqrt(mean(x^2) + epsilon), one number
a sequence, multiplies the sums of the projection that reads it. `squares` [PARTS, B] holds sums of x^2 over parts of a
row. Where a projection has too few rows for the device, its K is split over programs, which leave `partial` sums
[SPLITS, B, rows] that the next kernel adds in their order: no atomics, and the same bits at each launch.

Programmatic dependent launch follows the rules in `operations`. The first FIRST columns of a program's weights are on
the chip before the wait, in shared memory, where tensor cores read them. The pipelined loop over the other columns
starts after it, since nothing tells the compiler which of its loads may come early, and is already under way when the
first columns are multiplied: they come last. PREFETCHED more columns may be asked for before the wait: they are then
in the L2 (`batched_prefetch`).
"""

import triton
import triton.language as tl

from kernels.llama.batched_prefetch import LINE_BYTES, prefetch
from kernels.llama.program import finish, start, wait


@triton.jit
def _product(
    ahead,
    weights,
    activations,
    there,
    WAYS: tl.constexpr,
    FIRST: tl.constexpr,
    DEPTH: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):
    """weight @ activation over DEPTH columns, float32 [ROWS, N]: blocks of the loop first, `ahead` (columns 0 ..) last.

    ahead [ROWS, FIRST] as `_ahead` loaded it; weights: pointers [ROWS, 1] to column 0; activations: pointers [1, N],
    all of them to columns that are there; there: bool [1, N], which of the N columns are no padding.

    What the first columns are multiplied with is loaded before the loop, into registers. It is masked after the loop:
    the compiler moves a load's copy to shared memory up to the load, but not past the mask, and the loop's own loads
    would have to wait for it.

    WAYS > 1: so many warps each sum an equal range of the columns, and are added in the end. A tile of 16 rows has
    work for one warp only, and without this all of them would do the same.
    """
    first = tl.arange(0, FIRST)
    if WAYS == 1:
        early = tl.load(activations + first[:, None])
        sums = tl.zeros([ahead.shape[0], there.shape[1]], tl.float32)
        if FIRST < DEPTH:
            columns = tl.arange(0, BLOCK)
            for offset in tl.range(FIRST, DEPTH, BLOCK, num_stages=STAGES):
                weight = tl.load(weights + offset + columns[None, :])
                activation = tl.load(activations + offset + columns[:, None], mask=there, other=0.0)
                sums = tl.dot(weight, activation, sums, input_precision="ieee")
        early = tl.where(there, early, 0.0)
        sums = tl.dot(ahead, early, sums, input_precision="ieee")
    else:
        RANGE: tl.constexpr = DEPTH // WAYS
        starts = tl.arange(0, WAYS)[:, None, None] * RANGE
        weights = weights[None, :, :] + starts
        activations = activations[None, :, :] + starts
        there = there[None, :, :]
        early = tl.load(activations + first[None, :, None])
        sums = tl.zeros([WAYS, ahead.shape[1], there.shape[2]], tl.float32)
        if FIRST < RANGE:
            columns = tl.arange(0, BLOCK)
            for offset in tl.range(FIRST, RANGE, BLOCK, num_stages=STAGES):
                weight = tl.load(weights + offset + columns[None, None, :])
                activation = tl.load(activations + offset + columns[None, :, None], mask=there, other=0.0)
                sums = tl.dot(weight, activation, sums, input_precision="ieee")
        early = tl.where(there, early, 0.0)
        sums = tl.sum(tl.dot(ahead, early, sums, input_precision="ieee"), 0)
    return sums


@triton.jit
def _ahead(
    weights,
    WAYS: tl.constexpr,
    FIRST: tl.constexpr,
    PREFETCHED: tl.constexpr,
    DEPTH: tl.constexpr,
    PDL: tl.constexpr,
):
    """The first FIRST columns of each way's range: [ROWS, FIRST], or [WAYS, ROWS, FIRST] with more than one way.

    The PREFETCHED columns after them are asked for, if there is a wait to do it before.
    """
    if WAYS > 1:
        weights = weights[None, :, :] + tl.arange(0, WAYS)[:, None, None] * (DEPTH // WAYS)
    columns = tl.arange(0, FIRST)
    if WAYS == 1:
        loaded = tl.load(weights + columns[None, :])
    else:
        loaded = tl.load(weights + columns[None, None, :])
    if PDL and PREFETCHED > 0:
        LINE: tl.constexpr = LINE_BYTES * 8 // weights.dtype.element_ty.primitive_bitwidth
        lines = FIRST + tl.arange(0, PREFETCHED // LINE) * LINE
        if WAYS == 1:
            prefetch(weights + lines[None, :])
        else:
            prefetch(weights + lines[None, None, :])
    return loaded


@triton.jit
def _squares(squares_ptr, sequences, BATCH: tl.constexpr, PARTS: tl.constexpr):
    """The sums of squares of all parts, float32 [PARTS, N]. Loaded before the weights' loop, which hides it."""
    cells = squares_ptr + tl.arange(0, PARTS)[:, None] * BATCH + sequences[None, :]
    return tl.load(cells, mask=sequences[None, :] < BATCH, other=0.0)


@triton.jit
def _scales(squares, D: tl.constexpr, EPSILON: tl.constexpr):
    """1 / sqrt(mean(x^2) + epsilon) of each sequence, float32 [1, N]; the parts are added in one fixed order."""
    return tl.rsqrt(tl.sum(squares, 0) / D + EPSILON)[None, :]


@triton.jit
def embed(
    token_ptr,
    embedding_ptr,
    norm_ptr,
    x_ptr,
    scaled_ptr,
    squares_ptr,
    BATCH: tl.constexpr,
    D: tl.constexpr,
    PARTS: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """x[b] = embedding[token[b]]: [V, D] -> float32 [B, D]; scaled = x * norm [B, D]; squares float32 [PARTS, B].

    One program a sequence. Traffic: B D W bytes. First of a step.
    """
    begin = start(PDL, TRACE)
    sequence = tl.program_id(0)
    parts = tl.arange(0, PARTS)
    columns = parts[:, None] * (D // PARTS) + tl.arange(0, D // PARTS)[None, :]
    norm = tl.load(norm_ptr + columns).to(tl.float32)
    begin, end = wait(begin, PDL, TRACE)
    token = tl.load(token_ptr + sequence)
    x = tl.load(embedding_ptr + token * D + columns).to(tl.float32)
    tl.store(x_ptr + sequence * D + columns, x)
    tl.store(scaled_ptr + sequence * D + columns, (x * norm).to(scaled_ptr.dtype.element_ty))
    tl.store(squares_ptr + parts * BATCH + sequence, tl.sum(x * x, 1))
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def project(
    activation_ptr,
    weight_ptr,
    partial_ptr,
    BATCH: tl.constexpr,
    N: tl.constexpr,
    TOTAL: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
    WAYS: tl.constexpr,
    FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PREFETCHED: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """partial[s] = activation @ weight^T over the s-th of SPLITS equal ranges of K.

    activation [B, K]; weight [TOTAL, K]; partial float32 [SPLITS, B, TOTAL]. A program makes ROWS rows of one range.
    Grid: TOTAL / ROWS x SPLITS. Traffic: TOTAL K W bytes; activations and partial sums stay in the L2.
    """
    begin = start(PDL, TRACE)
    DEPTH: tl.constexpr = K // SPLITS
    split = tl.program_id(0) % SPLITS
    tile = tl.program_id(0) // SPLITS
    rows = tl.arange(0, ROWS)
    weights = weight_ptr + tile.to(tl.int64) * ROWS * K + split * DEPTH + rows[:, None] * K
    ahead = _ahead(weights, WAYS, FIRST, PREFETCHED, DEPTH, PDL)
    sequences = tl.arange(0, N)
    activations = activation_ptr + split * DEPTH + (sequences % BATCH)[None, :] * K
    begin, end = wait(begin, PDL, TRACE)
    sums = _product(ahead, weights, activations, sequences[None, :] < BATCH, WAYS, FIRST, DEPTH, BLOCK, STAGES)
    cells = (split * BATCH + sequences[None, :]) * TOTAL + tile * ROWS + rows[:, None]
    tl.store(partial_ptr + cells, sums, mask=sequences[None, :] < BATCH)
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def settle(
    partial_ptr,
    norm_ptr,
    x_ptr,
    scaled_ptr,
    squares_ptr,
    BATCH: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    PARTS: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """x += sum of the partial sums, in their order; then scaled = x * norm and the sums of squares.

    partial float32 [SPLITS, B, D]; x float32 [B, D]; scaled [B, D]; squares float32 [PARTS, B]. A program makes one
    part of one sequence. Grid: B x PARTS. Traffic: none but the norm's 2 D bytes; the rest is in the L2.
    """
    begin = start(PDL, TRACE)
    WIDTH: tl.constexpr = D // PARTS
    sequence = tl.program_id(0) // PARTS
    part = tl.program_id(0) % PARTS
    columns = part * WIDTH + tl.arange(0, WIDTH)
    norm = tl.load(norm_ptr + columns).to(tl.float32)
    begin, end = wait(begin, PDL, TRACE)
    x = tl.load(x_ptr + sequence * D + columns)
    for split in tl.static_range(SPLITS):
        x += tl.load(partial_ptr + (split * BATCH + sequence) * D + columns)
    tl.store(x_ptr + sequence * D + columns, x)
    tl.store(scaled_ptr + sequence * D + columns, (x * norm).to(scaled_ptr.dtype.element_ty))
    tl.store(squares_ptr + part * BATCH + sequence, tl.sum(x * x, 0))
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def project_and_settle(
    activation_ptr,
    weight_ptr,
    norm_ptr,
    x_ptr,
    scaled_ptr,
    squares_ptr,
    BATCH: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    WAYS: tl.constexpr,
    FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PREFETCHED: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """x += activation @ weight^T, then what `settle` makes of it: where a program's rows take all of K, one kernel.

    activation [B, K]; weight [D, K]; x float32 [B, D]; scaled [B, D]; squares float32 [D / ROWS, B].
    Grid: D / ROWS. Traffic: D K W bytes.
    """
    begin = start(PDL, TRACE)
    tile = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    weights = weight_ptr + tile * ROWS * K + rows[:, None] * K
    ahead = _ahead(weights, WAYS, FIRST, PREFETCHED, K, PDL)
    norm = tl.load(norm_ptr + tile * ROWS + rows).to(tl.float32)
    sequences = tl.arange(0, N)
    there = sequences[None, :] < BATCH
    begin, end = wait(begin, PDL, TRACE)
    cells = sequences[None, :] * D + tile * ROWS + rows[:, None]
    before = tl.load(x_ptr + cells, mask=there, other=0.0)
    activations = activation_ptr + (sequences % BATCH)[None, :] * K
    x = before + _product(ahead, weights, activations, there, WAYS, FIRST, K, BLOCK, STAGES)
    tl.store(x_ptr + cells, x, mask=there)
    tl.store(scaled_ptr + cells, (x * norm[:, None]).to(scaled_ptr.dtype.element_ty), mask=there)
    tl.store(squares_ptr + tile * BATCH + sequences, tl.sum(x * x, 0), mask=sequences < BATCH)
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def project_gate_up(
    scaled_ptr,
    squares_ptr,
    weight_ptr,
    hidden_ptr,
    BATCH: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    F: tl.constexpr,
    EPSILON: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    WAYS: tl.constexpr,
    FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PREFETCHED: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """hidden = silu(g) * u with g, u = rmsnorm(x) @ weight^T: scaled [B, D] -> hidden [B, F], weight [2 F, D].

    A program makes ROWS / 2 gates and their ups as one tile of ROWS rows. Grid: 2 F / ROWS. Traffic: 2 F D W bytes.
    """
    begin = start(PDL, TRACE)
    HALF: tl.constexpr = ROWS // 2
    tile = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    rows = tile * HALF + rows % HALF + (rows // HALF) * F
    weights = weight_ptr + rows[:, None] * D
    ahead = _ahead(weights, WAYS, FIRST, PREFETCHED, D, PDL)
    sequences = tl.arange(0, N)
    there = sequences < BATCH
    begin, end = wait(begin, PDL, TRACE)
    activations = scaled_ptr + (sequences % BATCH)[None, :] * D
    squares = _squares(squares_ptr, sequences, BATCH, PARTS)
    sums = _product(ahead, weights, activations, there[None, :], WAYS, FIRST, D, BLOCK, STAGES)
    sums *= _scales(squares, D, EPSILON)
    gate, up = tl.split(tl.permute(tl.reshape(sums, [2, HALF, N]), (1, 2, 0)))
    hidden = (gate * tl.sigmoid(gate) * up).to(hidden_ptr.dtype.element_ty)
    cells = sequences[None, :] * F + tile * HALF + tl.arange(0, HALF)[:, None]
    tl.store(hidden_ptr + cells, hidden, mask=there[None, :])
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def project_head(
    scaled_ptr,
    squares_ptr,
    embedding_ptr,
    logits_ptr,
    best_ptr,
    best_row_ptr,
    BATCH: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    V: tl.constexpr,
    EPSILON: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    WAYS: tl.constexpr,
    FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PREFETCHED: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """logits = rmsnorm(x) @ embedding^T: scaled [B, D] -> float32 [B, V], embedding [V, D]; and each tile's best.

    best float32 [B, V / ROWS], best_row int32 alike: the lowest row of the greatest logit of ROWS.
    Grid: V / ROWS. Traffic: V D W + 4 B V bytes.
    """
    begin = start(PDL, TRACE)
    tile = tl.program_id(0)
    rows = tl.arange(0, ROWS)
    weights = embedding_ptr + tile.to(tl.int64) * ROWS * D + rows[:, None] * D
    ahead = _ahead(weights, WAYS, FIRST, PREFETCHED, D, PDL)
    sequences = tl.arange(0, N)
    there = sequences < BATCH
    begin, end = wait(begin, PDL, TRACE)
    activations = scaled_ptr + (sequences % BATCH)[None, :] * D
    squares = _squares(squares_ptr, sequences, BATCH, PARTS)
    sums = _product(ahead, weights, activations, there[None, :], WAYS, FIRST, D, BLOCK, STAGES)
    logits = sums * _scales(squares, D, EPSILON)
    cells = sequences[None, :] * V + tile * ROWS + rows[:, None]
    tl.store(logits_ptr + cells, logits, mask=there[None, :])
    best, row = tl.max(logits, 0, return_indices=True)
    tl.store(best_ptr + sequences * (V // ROWS) + tile, best, mask=there)
    tl.store(best_row_ptr + sequences * (V // ROWS) + tile, tile * ROWS + row, mask=there)
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
    """token[b] = lowest row of the greatest logit of sequence b, out of COUNT tiles' best; WIDTH: next power of two.

    One program a sequence. Traffic: 8 B COUNT bytes, from the L2. Last of a step.
    """
    begin = start(PDL, TRACE)
    sequence = tl.program_id(0)
    entries = tl.arange(0, WIDTH)
    begin, end = wait(begin, PDL, TRACE)
    best = tl.load(best_ptr + sequence * COUNT + entries, mask=entries < COUNT, other=-float("inf"))
    _, winner = tl.max(best, 0, return_indices=True)
    tl.store(token_ptr + sequence, tl.load(best_row_ptr + sequence * COUNT + winner).to(tl.int64))
    finish(trace_ptr, begin, end, TRACE)
