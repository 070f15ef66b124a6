"""A whole decode step as one persistent kernel: every program walks over its part of the tape.

What each instruction means is written down in `instructions`, and as plain torch in `interpreter`; this is the same in
Gluon. All weights lie packed in the order in which the programs consume them, in tiles of 16 rows of D columns, and
come through a ring of SLOTS tiles in shared memory. A warp of its own fills it ahead, across stages, layers and steps:
while a program waits for others, its weights keep arriving. It keeps only FLIGHT tiles under way at a time: loads of
activations, for which everybody waits, queue behind whatever else the memory system has been asked for.

One warp sums two rows of a tile, each lane 8 columns out of 256 in each of D / 256 blocks, then over the lanes: the
order depends on nothing but D, so the same bits come out for any number of programs and any timing. Activations are
float32 words with a tag (`words`); every warp holds the whole vector, so nothing of a product crosses warps.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from kernels.llama.megakernel.attention import attend, merged, prefetch_rows
from kernels.llama.megakernel.ring import fetch, products
from kernels.llama.megakernel.synchronization import signal, stamp, stamp_place, thread_barrier, wait
from kernels.llama.megakernel.words import confirmed, glance, post_row, received, tag_of


@gluon.jit
def _normalized(x, norm, D: gl.constexpr, EPSILON: gl.constexpr):
    return x * norm.to(gl.float32) * gl.rsqrt(gl.sum(gl.sum(x * x, axis=0), axis=0) / D + EPSILON)


@gluon.jit
def _pick(best, best_row, PROGRAMS: gl.constexpr, WIDTH: gl.constexpr, WARPS: gl.constexpr):
    """Lowest row of the greatest of all programs' best."""
    LAYOUT: gl.constexpr = gl.BlockedLayout([1], [32], [WARPS], [0])
    program = gl.arange(0, WIDTH, layout=LAYOUT)
    value = gl.load(best + program, mask=program < PROGRAMS, other=-float("inf"))
    row = gl.load(best_row + program, mask=program < PROGRAMS, other=2147483647)
    return gl.min(gl.where(value == gl.max(value, axis=0), row, 2147483647), axis=0)


@gluon.jit
def _follow(
    lines,
    run_count,
    embedding,
    norms,
    cosine,
    sine,
    token_in,
    first_position,
    tokens,
    x,
    mid,
    rows,
    keys,
    values,
    attended,
    hidden,
    logits,
    best,
    best_row,
    epoch_ptr,
    counters,
    trace,
    program,
    begin,
    slots,
    full,
    empty,
    LAYERS: gl.constexpr,
    D: gl.constexpr,
    QUERY_HEADS: gl.constexpr,
    KV_HEADS: gl.constexpr,
    HD: gl.constexpr,
    F: gl.constexpr,
    CONTEXT: gl.constexpr,
    STEPS: gl.constexpr,
    EPSILON: gl.constexpr,
    PROGRAMS: gl.constexpr,
    WIDTH: gl.constexpr,
    SPLITS: gl.constexpr,
    SPAN: gl.constexpr,
    BLOCK: gl.constexpr,
    SLOTS: gl.constexpr,
    WARPS: gl.constexpr,
    TOKEN: gl.constexpr,
    TRACE: gl.constexpr,
):
    """A program's part of the tape, run by run. A run is the tiles that one vector is multiplied with."""
    H: gl.constexpr = WARPS
    HALF: gl.constexpr = HD // 2
    BLOCKS: gl.constexpr = D // 256
    GROUP: gl.constexpr = QUERY_HEADS // KV_HEADS
    ROW_BLOCKS: gl.constexpr = D // (2 * H)
    WEIGHT: gl.constexpr = gl.BlockedLayout([1, 1, 8], [1, 1, 32], [WARPS, 1, 1], [2, 1, 0])
    VECTOR: gl.constexpr = gl.SliceLayout(0, WEIGHT)
    ROW: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(1, WEIGHT))
    LINE: gl.constexpr = gl.BlockedLayout([2], [32], [WARPS], [0])
    SHARED: gl.constexpr = gl.BlockedLayout([1, 8], [1, 32], [WARPS, 1], [1, 0])
    QKV: gl.constexpr = 0
    ATTEND: gl.constexpr = 1
    OUT: gl.constexpr = 2
    GATE_UP: gl.constexpr = 3
    DOWN: gl.constexpr = 4
    HEAD: gl.constexpr = 5
    PICK: gl.constexpr = 6

    base = gl.load(epoch_ptr)
    start = gl.load(first_position).to(gl.int32)
    row = gl.arange(0, H, layout=ROW)
    block_index = gl.arange(0, BLOCKS, layout=gl.SliceLayout(1, VECTOR))
    within = gl.arange(0, 256, layout=gl.SliceLayout(0, VECTOR))
    columns = block_index[:, None] * 256 + within[None, :]
    word = gl.arange(0, 2, layout=LINE)
    shared_block = gl.arange(0, BLOCKS, layout=gl.SliceLayout(1, SHARED))
    shared_within = gl.arange(0, 256, layout=gl.SliceLayout(0, SHARED))
    shared = shared_block[:, None] * 256 + shared_within[None, :]
    sum_low = gl.zeros([H], gl.float32, layout=ROW)
    sum_high = gl.zeros([H], gl.float32, layout=ROW)
    own_low = gl.zeros([H], gl.float32, layout=ROW)
    own_high = gl.zeros([H], gl.float32, layout=ROW)
    seen = gl.zeros([BLOCKS, 256], gl.int32, layout=SHARED)
    next_turn = gl.zeros([H], gl.float32, layout=ROW)
    next_swing = gl.zeros([H], gl.float32, layout=ROW)
    slot = begin * 0
    phase = begin * 0
    for step in range(STEPS):
        epoch = base + 1 + step
        position = start + step
        wait(counters + TOKEN * 32, epoch - 1)
        token = gl.load(token_in)
        if step > 0:
            token = gl.load(tokens + step - 1)
        i = begin
        for number in range(run_count):
            line = lines.index(number).load(LINE)
            low = gl.sum(gl.where(word == 0, line, 0), axis=0)
            high = gl.sum(gl.where(word == 1, line, 0), axis=0)
            names = high.to(gl.int32)
            amounts = (high >> 32).to(gl.int32)
            run = amounts >> 17
            kind = low.to(gl.int32) & 15
            layer = low.to(gl.int32) >> 8
            tile = (low >> 32).to(gl.int32)
            tag = tag_of(epoch, layer, LAYERS)
            earlier_tag = tag_of(epoch, layer - 1, LAYERS)
            if kind == ATTEND:
                head = tile % QUERY_HEADS
                cache = (layer * KV_HEADS + head // GROUP) * (CONTEXT * HD)
                attend(
                    rows,
                    keys + cache,
                    values + cache,
                    attended,
                    tag,
                    trace,
                    i * 4,
                    head,
                    tile // QUERY_HEADS,
                    position,
                    D,
                    QUERY_HEADS,
                    KV_HEADS,
                    HD,
                    SPAN,
                    BLOCK,
                    WARPS,
                    TRACE,
                )
                stamp(trace, i * 4 + 2, TRACE)
                stamp_place(trace, i * 4 + 3, TRACE)
            elif kind == PICK:
                stamp(trace, i * 4, TRACE)
                wait(counters + ((names & 65535) - 1) * 32, epoch * (amounts & 65535))
                stamp(trace, i * 4 + 1, TRACE)
                gl.store(tokens + step, _pick(best, best_row, PROGRAMS, WIDTH, WARPS).to(gl.int64))
                if step == STEPS - 1:
                    gl.store(epoch_ptr, epoch)
                signal(counters + TOKEN * 32)
                stamp(trace, i * 4 + 2, TRACE)
                stamp_place(trace, i * 4 + 3, TRACE)
            else:
                stamp(trace, i * 4, TRACE)
                if kind == QKV:
                    pair = (tile % (HALF // H)) * H + row
                    next_turn = gl.load(cosine + position * HALF + pair)
                    next_swing = gl.load(sine + position * HALF + pair)
                    next_line = lines.index(number + 1).load(LINE)
                    next_low = gl.sum(gl.where(word == 0, next_line, 0), axis=0)
                    if next_low.to(gl.int32) & 15 == ATTEND:
                        prefetch_rows(
                            keys,
                            values,
                            layer,
                            (next_low >> 32).to(gl.int32),
                            position,
                            QUERY_HEADS,
                            KV_HEADS,
                            HD,
                            CONTEXT,
                            SPAN,
                        )
                if (kind == QKV) | (kind == GATE_UP) | (kind == HEAD):
                    norm_row = gl.where(kind == HEAD, 2 * LAYERS, 2 * layer + gl.where(kind == GATE_UP, 1, 0))
                    norm = gl.load(norms + norm_row * D + columns)
                    if (kind == QKV) & (layer == 0):
                        raw = gl.load(embedding + token * D + columns).to(gl.float32)
                    else:
                        if kind == GATE_UP:
                            posted = received(mid + shared, tag)
                        else:
                            posted = received(x + shared, earlier_tag)
                        raw = gl.convert_layout(posted, VECTOR)
                    vector = _normalized(raw, norm, D, EPSILON)
                elif kind == OUT:
                    vector = merged(attended, tag, D, SPLITS, WARPS, VECTOR)
                else:
                    chunk = hidden + (tile // ROW_BLOCKS) * D + shared
                    if tile < ROW_BLOCKS:
                        posted = received(chunk, tag)
                    else:
                        posted = confirmed(seen, chunk, tag)
                    vector = gl.convert_layout(posted, VECTOR)
                    if tile < (F // D - 1) * ROW_BLOCKS:
                        seen = glance(chunk + D)
                stamp(trace, i * 4 + 1, TRACE)
                own_rows = (tile % ROW_BLOCKS) * (2 * H) + row
                if (kind == OUT) & (layer == 0):
                    own_low = gl.load(embedding + token * D + own_rows).to(gl.float32)
                    own_high = gl.load(embedding + token * D + own_rows + H).to(gl.float32)
                best_value = gl.full([H], -float("inf"), gl.float32, layout=ROW)
                best_at = gl.full([H], 0, gl.int32, layout=ROW)
                for n in range(run):
                    product_low, product_high, slot, phase = products(
                        vector, slots, full, empty, slot, phase, SLOTS, H, WEIGHT
                    )
                    if kind == GATE_UP:
                        gated = product_low * product_high / (1.0 + gl.exp2(-1.4426950408889634 * product_low))
                        post_row(hidden + tile * H + row, gated, tag)
                    elif kind == DOWN:
                        if tile < ROW_BLOCKS:
                            sum_low = product_low
                            sum_high = product_high
                        else:
                            sum_low += product_low
                            sum_high += product_high
                        if tile >= (F // D - 1) * ROW_BLOCKS:
                            own_low += sum_low
                            own_high += sum_high
                            post_row(x + own_rows, own_low, tag)
                            post_row(x + own_rows + H, own_high, tag)
                    elif kind == OUT:
                        own_low += product_low
                        own_high += product_high
                        post_row(mid + own_rows, own_low, tag)
                        post_row(mid + own_rows + H, own_high, tag)
                    elif kind == QKV:
                        qkv_head = tile // (HALF // H)
                        pair = (tile % (HALF // H)) * H + row
                        if qkv_head < QUERY_HEADS + KV_HEADS:
                            rotated_low = product_low * next_turn - product_high * next_swing
                            rotated_high = product_high * next_turn + product_low * next_swing
                        else:
                            rotated_low = product_low
                            rotated_high = product_high
                        next_pair = ((tile + PROGRAMS) % (HALF // H)) * H + row
                        next_turn = gl.load(cosine + position * HALF + next_pair)
                        next_swing = gl.load(sine + position * HALF + next_pair)
                        if qkv_head >= QUERY_HEADS:
                            kv_head = (qkv_head - QUERY_HEADS) % KV_HEADS
                            cell = ((layer * KV_HEADS + kv_head) * CONTEXT + position) * HD + pair
                            kept_low = rotated_low.to(gl.bfloat16)
                            kept_high = rotated_high.to(gl.bfloat16)
                            cache = keys
                            if qkv_head >= QUERY_HEADS + KV_HEADS:
                                cache = values
                            gl.store(cache + cell, kept_low)
                            gl.store(cache + cell + HALF, kept_high)
                            rotated_low = kept_low.to(gl.float32)
                            rotated_high = kept_high.to(gl.float32)
                        post_row(rows + qkv_head * HD + pair, rotated_low, tag)
                        post_row(rows + qkv_head * HD + HALF + pair, rotated_high, tag)
                    else:
                        logit_rows = tile * (2 * H) + row
                        gl.store(logits + logit_rows, product_low)
                        gl.store(logits + logit_rows + H, product_high)
                        best_at = gl.where(product_low > best_value, logit_rows, best_at)
                        best_value = gl.maximum(best_value, product_low)
                        best_at = gl.where(product_high > best_value, logit_rows + H, best_at)
                        best_value = gl.maximum(best_value, product_high)
                    stamp(trace, (i + n) * 4 + 2, TRACE)
                    stamp_place(trace, (i + n) * 4 + 3, TRACE)
                    tile += PROGRAMS
                    if n + 1 < run:
                        stamp(trace, (i + n) * 4 + 4, TRACE)
                        stamp(trace, (i + n) * 4 + 5, TRACE)
                if kind == HEAD:
                    peak = gl.max(best_value, axis=0)
                    gl.store(best + program, peak)
                    lowest = gl.min(gl.where(best_value == peak, best_at, 2147483647), axis=0)
                    gl.store(best_row + program, lowest)
                    signal(counters + (TOKEN - 1) * 32)
            i += run


@gluon.jit
def megakernel(
    tiles,
    runs,
    run_counts,
    starts,
    tile_starts,
    embedding,
    norms,
    cosine,
    sine,
    token_in,
    first_position,
    tokens,
    x,
    mid,
    rows,
    keys,
    values,
    attended,
    hidden,
    logits,
    best,
    best_row,
    epoch_ptr,
    counters,
    trace,
    LAYERS: gl.constexpr,
    D: gl.constexpr,
    QUERY_HEADS: gl.constexpr,
    KV_HEADS: gl.constexpr,
    HD: gl.constexpr,
    F: gl.constexpr,
    CONTEXT: gl.constexpr,
    STEPS: gl.constexpr,
    EPSILON: gl.constexpr,
    PROGRAMS: gl.constexpr,
    RUNS: gl.constexpr,
    WIDTH: gl.constexpr,
    SPLITS: gl.constexpr,
    SPAN: gl.constexpr,
    BLOCK: gl.constexpr,
    SLOTS: gl.constexpr,
    FLIGHT: gl.constexpr,
    WARPS: gl.constexpr,
    TOKEN: gl.constexpr,
    REGISTERS: gl.constexpr,
    TRACE: gl.constexpr,
):
    """STEPS decode steps of one sequence. Grid: PROGRAMS, all resident at once, or the cooperative launch is refused.

    tiles: descriptor of bf16 [tiles ROWS, D / 256, 256], ROWS = 2 WARPS; runs int64 [PROGRAMS, RUNS, 2]: the
    first line of each run, and run_counts int32 [PROGRAMS]; starts and tile_starts int32 [PROGRAMS + 1]: first
    instruction and first tile of each program. embedding bf16 [V, D]; norms
    bf16 [2 LAYERS + 1, D]; cosine, sine float32 [CONTEXT, HD / 2]; token_in, first_position int64 [1]; tokens int64
    [STEPS]; keys, values bf16 [LAYERS, KV_HEADS, CONTEXT, HD]; logits float32 [V].
    Scratch, tagged float32: x, mid [D], rows [QUERY_HEADS + 2 KV_HEADS, HD], attended [SPLITS, D / 8, 16], hidden [F].
    Scratch, plain: best float32 and best_row int32 [PROGRAMS]. epoch_ptr int32 [1] and counters int32 live from launch
    to launch. A program that has OUT tiles has one, and the DOWN tiles of the same rows: it keeps them in registers.
    Every program has HEAD tiles.

    Traffic of a step: all weights once, keys and values once from memory (a group's heads share them in the L2).
    """
    program = gl.program_id(0)
    begin = gl.load(starts + program)
    run_count = gl.load(run_counts + program)
    first_tile = gl.load(tile_starts + program)
    last_tile = gl.load(tile_starts + program + 1)
    slots = gl.allocate_shared_memory(gl.bfloat16, [SLOTS, 2 * WARPS, D // 256, 256], tiles.layout)
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for place in gl.static_range(SLOTS):
        mbarrier.init(full.index(place), count=1)
        mbarrier.init(empty.index(place), count=1)
    lines = gl.allocate_shared_memory(gl.int64, [RUNS, 2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    TABLE: gl.constexpr = gl.BlockedLayout([1, 2], [32, 1], [WARPS, 1], [1, 0])
    number = gl.arange(0, RUNS, layout=gl.SliceLayout(1, TABLE))
    half = gl.arange(0, 2, layout=gl.SliceLayout(0, TABLE))
    table = gl.load(runs + program * (2 * RUNS) + number[:, None] * 2 + half[None, :])
    lines._reinterpret(gl.int64, [RUNS, 2], gl.SwizzledSharedLayout(1, 1, 1, [1, 0])).store(table)
    fence_async_shared()
    thread_barrier()
    gl.warp_specialize(
        [
            (
                _follow,
                (
                    lines,
                    run_count,
                    embedding,
                    norms,
                    cosine,
                    sine,
                    token_in,
                    first_position,
                    tokens,
                    x,
                    mid,
                    rows,
                    keys,
                    values,
                    attended,
                    hidden,
                    logits,
                    best,
                    best_row,
                    epoch_ptr,
                    counters,
                    trace,
                    program,
                    begin,
                    slots,
                    full,
                    empty,
                    LAYERS,
                    D,
                    QUERY_HEADS,
                    KV_HEADS,
                    HD,
                    F,
                    CONTEXT,
                    STEPS,
                    EPSILON,
                    PROGRAMS,
                    WIDTH,
                    SPLITS,
                    SPAN,
                    BLOCK,
                    SLOTS,
                    WARPS,
                    TOKEN,
                    TRACE,
                ),
            ),
            (
                fetch,
                (
                    tiles,
                    slots,
                    full,
                    empty,
                    first_tile,
                    last_tile,
                    STEPS,
                    SLOTS,
                    FLIGHT,
                    2 * WARPS,
                    4 * WARPS * D,
                ),
            ),
        ],
        [1],
        [REGISTERS],
    )
