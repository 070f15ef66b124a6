"""Attention of several sequences at once, each over its own keys and values, on tensor cores; float32 softmax.

Shapes and conventions are those of `batched_operations`.
"""

import triton
import triton.language as tl

from kernels.llama.batched_prefetch import LINE_BYTES, prefetch
from kernels.llama.program import finish, start, wait


@triton.jit
def attend(
    partial_ptr,
    squares_ptr,
    cosine_ptr,
    sine_ptr,
    position_ptr,
    keys_ptr,
    values_ptr,
    attended_ptr,
    BATCH: tl.constexpr,
    QUERY_HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HD: tl.constexpr,
    CONTEXT: tl.constexpr,
    D: tl.constexpr,
    EPSILON: tl.constexpr,
    SPLITS: tl.constexpr,
    PARTS: tl.constexpr,
    HEADS: tl.constexpr,
    LANES: tl.constexpr,
    FIRST: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    PREFETCHED: tl.constexpr,
    PDL: tl.constexpr,
    trace_ptr=None,
    TRACE: tl.constexpr = False,
):
    """q, k, v from the partial sums of their projection; rotate; append k, v; attended = softmax(q k^T / sqrt(HD)) v.

    partial float32 [SPLITS, B, (QUERY_HEADS + 2 KV_HEADS) HD], still to be scaled by the norm; keys, values
    [B KV_HEADS, C, HD], row b KV_HEADS + h is head h of sequence b; attended [B, QUERY_HEADS HD]. Any position below C.

    A program makes HEADS query heads of one key head of one sequence, which share what it loads; they are the LANES
    rows of the tensor cores' left operand. Nothing in this step reads the row that it appends but the program
    itself, from registers: so keys and values are loaded without regard to the wait, the first FIRST positions before
    it, when the PREFETCHED positions after them are asked for as well. Softmax in base 2, online over blocks (Milakov
    and Gimelshein 2018; Dao et al. 2022).
    Grid: B x KV_HEADS x programs that share a key head. Traffic: 2 B KV_HEADS (position + 1) HD W bytes.
    """
    begin = start(PDL, TRACE)
    GROUP: tl.constexpr = QUERY_HEADS // KV_HEADS
    SHARES: tl.constexpr = GROUP // HEADS
    TOTAL: tl.constexpr = (QUERY_HEADS + 2 * KV_HEADS) * HD
    HALF: tl.constexpr = HD // 2
    LOG2_E: tl.constexpr = 1.4426950408889634
    share = tl.program_id(0) % SHARES
    row = tl.program_id(0) // SHARES
    sequence = row // KV_HEADS
    kv_head = row % KV_HEADS
    keys_ptr += row * CONTEXT * HD
    values_ptr += row * CONTEXT * HD
    number = keys_ptr.dtype.element_ty
    columns = tl.arange(0, HD)
    position = tl.load(position_ptr)
    first = tl.arange(0, FIRST)
    first_there = first < position
    first_cells = first[:, None] * HD + columns[None, :]
    first_keys = tl.load(keys_ptr + first_cells, mask=first_there[:, None], other=0.0)
    first_values = tl.load(values_ptr + first_cells, mask=first_there[:, None], other=0.0)
    cosine = tl.load(cosine_ptr + position * HALF + columns % HALF)
    sine = tl.load(sine_ptr + position * HALF + columns % HALF)
    sine = tl.where(columns < HALF, -sine, sine)
    swapped = (columns + HALF) % HD
    lanes = tl.arange(0, LANES)
    heads = kv_head * GROUP + share * HEADS + lanes
    lane_there = lanes[:, None] < HEADS
    if PDL and PREFETCHED > 0:
        # Positions that are not there yet ask for the step's own line again, which is harmless.
        LINE: tl.constexpr = LINE_BYTES * 8 // number.primitive_bitwidth
        lines = tl.arange(0, PREFETCHED * HD // LINE) * LINE
        lines = tl.minimum(FIRST * HD + lines, position * HD)
        prefetch(keys_ptr + lines)
        prefetch(values_ptr + lines)
    begin, end = wait(begin, PDL, TRACE)
    squares = tl.load(squares_ptr + tl.arange(0, PARTS) * BATCH + sequence)
    # To add many parts takes barriers, which no load passes: after the other loads. A warp adds a few without; later
    # they would only take registers.
    if PARTS <= 32:
        scale = tl.rsqrt(tl.sum(squares, 0) / D + EPSILON)
    query = tl.zeros([LANES, HD], tl.float32)
    query_swapped = tl.zeros([LANES, HD], tl.float32)
    key = tl.zeros([HD], tl.float32)
    key_swapped = tl.zeros([HD], tl.float32)
    value = tl.zeros([HD], tl.float32)
    for split in tl.static_range(SPLITS):
        sums = partial_ptr + (split * BATCH + sequence) * TOTAL
        query += tl.load(sums + heads[:, None] * HD + columns[None, :], mask=lane_there, other=0.0)
        query_swapped += tl.load(sums + heads[:, None] * HD + swapped[None, :], mask=lane_there, other=0.0)
        sums += (QUERY_HEADS + kv_head) * HD
        key += tl.load(sums + columns)
        key_swapped += tl.load(sums + swapped)
        value += tl.load(sums + KV_HEADS * HD + columns)
    if PARTS > 32:
        scale = tl.rsqrt(tl.sum(squares, 0) / D + EPSILON)
    query = (query * cosine[None, :] + query_swapped * sine[None, :]) * (scale * (LOG2_E / (HD**0.5)))
    query = query.to(number)
    key = ((key * cosine + key_swapped * sine) * scale).to(number)
    value = (value * scale).to(number)
    if share == 0:
        tl.store(keys_ptr + position * HD + columns, key)
        tl.store(values_ptr + position * HD + columns, value)
    # The softmax starts with the step's own position.
    greatest = tl.sum(query.to(tl.float32) * key.to(tl.float32)[None, :], 1)
    total = tl.full([LANES], 1.0, tl.float32)
    weighted = tl.zeros([LANES, HD], tl.float32) + value.to(tl.float32)[None, :]
    if CONTEXT - 1 > FIRST:
        positions = tl.arange(0, BLOCK)
        cells = positions[:, None] * HD + columns[None, :]
        for offset in tl.range(FIRST, position, BLOCK, num_stages=STAGES):
            there = offset + positions < position
            keys = tl.load(keys_ptr + offset * HD + cells, mask=there[:, None], other=0.0)
            values = tl.load(values_ptr + offset * HD + cells, mask=there[:, None], other=0.0)
            greatest, total, weighted = _softmax_block(query, keys, values, there, greatest, total, weighted)
    greatest, total, weighted = _softmax_block(query, first_keys, first_values, first_there, greatest, total, weighted)
    attended = (weighted / total[:, None]).to(attended_ptr.dtype.element_ty)
    cells = (sequence * QUERY_HEADS + heads)[:, None] * HD + columns[None, :]
    tl.store(attended_ptr + cells, attended, mask=lane_there)
    finish(trace_ptr, begin, end, TRACE)


@triton.jit
def _softmax_block(query, keys, values, there, greatest, total, weighted):
    """The online softmax with another block of positions: greatest score, sum of shares, weighted sum of values."""
    scores = tl.dot(query, tl.trans(keys), input_precision="ieee")
    scores = tl.where(there[None, :], scores, -1.0e30)
    raised = tl.maximum(greatest, tl.max(scores, 1))
    shares = tl.exp2(scores - raised[:, None])
    shrink = tl.exp2(greatest - raised)
    total = total * shrink + tl.sum(shares, 1)
    weighted = tl.dot(shares.to(values.dtype), values, weighted * shrink[:, None], input_precision="ieee")
    return raised, total, weighted
