"""Attention in the megakernel: one head over a part of the positions, and the parts put together.

Softmax in base 2, online over blocks where a part is longer than one (Milakov and Gimelshein 2018; Dao et al. 2022).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.llama.megakernel.synchronization import prefetch, stamp
from kernels.llama.megakernel.words import post_eight, received_eight, received_three, received_two_eights


@gluon.jit
def attend(
    rows,
    keys,
    values,
    attended,
    tag,
    trace,
    at,
    head,
    split,
    position,
    D: gl.constexpr,
    QUERY_HEADS: gl.constexpr,
    KV_HEADS: gl.constexpr,
    HD: gl.constexpr,
    SPAN: gl.constexpr,
    BLOCK: gl.constexpr,
    WARPS: gl.constexpr,
    TRACE: gl.constexpr,
):
    """One head over the positions of one split; keys and values [C, HD] of its layer and kv head.

    The first BLOCK earlier positions are in registers before the wait: nothing in this step writes them. The step's own
    key and value come as tagged words, like the query.
    """
    CELLS: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HD, HD // 8], [WARPS, 1], [1, 0])
    COLUMN: gl.constexpr = gl.SliceLayout(0, CELLS)
    ROW: gl.constexpr = gl.SliceLayout(1, CELLS)
    columns = gl.arange(0, HD, layout=COLUMN)
    offsets = split * SPAN + gl.arange(0, BLOCK, layout=ROW)
    last = gl.minimum((split + 1) * SPAN, position)
    there = offsets < last
    cells = offsets[:, None] * HD + columns[None, :]
    key = gl.load(keys + cells, mask=there[:, None], other=0.0)
    value = gl.load(values + cells, mask=there[:, None], other=0.0)
    stamp(trace, at, TRACE)
    LOG2_E: gl.constexpr = 1.4426950408889634
    kv_row = QUERY_HEADS + head // (QUERY_HEADS // KV_HEADS)
    wanted, own_key, own_value = received_three(
        rows + head * HD + columns, rows + kv_row * HD + columns, rows + (kv_row + KV_HEADS) * HD + columns, tag
    )
    stamp(trace, at + 1, TRACE)
    wanted = wanted * (LOG2_E / (HD**0.5))
    scores = gl.where(there, gl.sum(key.to(gl.float32) * wanted[None, :], axis=1), -1.0e30)
    own = position // SPAN == split
    own_score = gl.where(own, gl.sum(own_key * wanted, axis=0), -1.0e30)
    peak = gl.maximum(gl.max(scores, axis=0), own_score)
    shares = gl.where(there, gl.exp2(scores - peak), 0.0)
    own_share = gl.where(own, gl.exp2(own_score - peak), 0.0)
    total = gl.sum(shares, axis=0) + own_share
    weighted = gl.sum(shares[:, None] * value.to(gl.float32), axis=0) + own_share * own_value
    if SPAN > BLOCK:
        offsets = split * SPAN + BLOCK + gl.arange(0, BLOCK, layout=ROW)
        cells = offsets[:, None] * HD + columns[None, :]
        next_key = gl.load(keys + cells, mask=(offsets < last)[:, None], other=0.0)
        next_value = gl.load(values + cells, mask=(offsets < last)[:, None], other=0.0)
        for _ in range(split * SPAN + BLOCK, last, BLOCK):
            key = next_key
            value = next_value
            there = offsets < last
            offsets += BLOCK
            cells = offsets[:, None] * HD + columns[None, :]
            next_key = gl.load(keys + cells, mask=(offsets < last)[:, None], other=0.0)
            next_value = gl.load(values + cells, mask=(offsets < last)[:, None], other=0.0)
            scores = gl.where(there, gl.sum(key.to(gl.float32) * wanted[None, :], axis=1), -1.0e30)
            raised = gl.maximum(peak, gl.max(scores, axis=0))
            shrink = gl.exp2(peak - raised)
            shares = gl.where(there, gl.exp2(scores - raised), 0.0)
            total = total * shrink + gl.sum(shares, axis=0)
            weighted = weighted * shrink + gl.sum(shares[:, None] * value.to(gl.float32), axis=0)
            peak = raised
    place = split * (2 * D) + (head * (HD // 8) + columns // 8) * 16 + columns % 8
    post_eight(attended + place, weighted, peak, total, tag, HD // 8)


@gluon.jit
def merged(
    attended,
    tag,
    D: gl.constexpr,
    SPLITS: gl.constexpr,
    WARPS: gl.constexpr,
    VECTOR: gl.constexpr,
):
    """Attention's splits put together in fixed order -> float32 [D/256, 256].

    8 neighbouring columns belong to one head; their peak and total lie beside them.
    """
    EIGHTS: gl.constexpr = gl.BlockedLayout([1, 1, 8], [1, 32, 1], [WARPS, 1, 1], [2, 1, 0])
    block = gl.arange(0, D // 256, layout=gl.SliceLayout(1, gl.SliceLayout(2, EIGHTS)))
    eight = gl.arange(0, 32, layout=gl.SliceLayout(0, gl.SliceLayout(2, EIGHTS)))
    word = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(1, EIGHTS)))
    at = gl.expand_dims((block[:, None] * 32 + eight[None, :]) * 16, 2) + gl.expand_dims(gl.expand_dims(word, 0), 1)
    if SPLITS == 1:
        whole, peak, total = received_eight(attended + at, tag)
    else:
        for split in gl.static_range(0, SPLITS, 2):
            one, one_peak, one_total, two, two_peak, two_total = received_two_eights(
                attended + split * (2 * D) + at, attended + (split + 1) * (2 * D) + at, tag
            )
            if split == 0:
                whole = one
                total = one_total
                peak = one_peak
            else:
                raised = gl.maximum(peak, one_peak)
                whole = whole * gl.exp2(peak - raised) + one * gl.exp2(one_peak - raised)
                total = total * gl.exp2(peak - raised) + one_total * gl.exp2(one_peak - raised)
                peak = raised
            raised = gl.maximum(peak, two_peak)
            whole = whole * gl.exp2(peak - raised) + two * gl.exp2(two_peak - raised)
            total = total * gl.exp2(peak - raised) + two_total * gl.exp2(two_peak - raised)
            peak = raised
    return gl.convert_layout(gl.reshape(whole / total, [D // 256, 256]), VECTOR)


@gluon.jit
def prefetch_rows(
    keys,
    values,
    layer,
    tile,
    position,
    QUERY_HEADS: gl.constexpr,
    KV_HEADS: gl.constexpr,
    HD: gl.constexpr,
    CONTEXT: gl.constexpr,
    SPAN: gl.constexpr,
):
    """Ask the L2 for the earlier keys and values of an ATTEND tile."""
    first = (tile // QUERY_HEADS) * SPAN
    count = (gl.minimum(first + SPAN, position) - first) * (HD * 2)
    cell = ((layer * KV_HEADS + (tile % QUERY_HEADS) // (QUERY_HEADS // KV_HEADS)) * CONTEXT + first) * HD
    if count > 0:
        prefetch(keys + cell, count)
        prefetch(values + cell, count)
