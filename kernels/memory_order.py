"""Is what programs hand to each other ordered in the machine's code? Checks of PTX; no GPU and no interpreter can tell.

A race that these find may give right results for years on one device. Each function returns what is wrong, in words;
nothing: it found nothing. They ask for one way to do it, not for every way that would be right.

`hand_over_faults`: a kernel whose programs wait for each other through counters (NVIDIA, "PTX ISA", Memory Consistency
Model). Each signal is a release at the scope of the GPU with a barrier of the block's threads right before it, since
the release of one thread orders the stores of the others only through that barrier; each wait an acquire with such a
barrier behind it, before anything is read. Where a warp of its own signals, it waits at an mbarrier in place of that
barrier, and whoever arrives there has passed a barrier of those that stored.

Words that carry a tag of their own need no order and may be relaxed (`tagged`): each is 32 bits, what is stored was put
together of value and tag, what is loaded is compared with a tag. That the tag is the right one is not seen here.

`dependent_launch_faults`: a kernel that may start before its predecessor is done (programmatic dependent launch). No
global store before `griddepcontrol.wait`, no load of what the predecessors write, and no way around the wait; "before"
along every way through the code that the first pass of a loop may take (`ptx_paths`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kernels.ptx import Instruction, by_result, by_source, instructions, parameters_of_addresses, reaches
from kernels.ptx_paths import before_wait

_ORDERED = {"release", "acquire", "acq_rel", "sc"}
_WIDE = {"gpu", "sys"}


def hand_over_faults(ptx: str, *, tagged: bool = False) -> tuple[str, ...]:
    """Of a kernel with counters; one that neither signals nor waits is at fault too."""
    code = instructions(ptx)
    found = [fault for at in range(len(code)) for fault in _faults_at(code, at, tagged=tagged)]
    if tagged:
        found += _untagged(code)
    if not signals(ptx):
        found.append("no signal: nothing is released")
    if not waits(ptx):
        found.append("no wait: nothing is acquired")
    return tuple(found)


def signals(ptx: str) -> int:
    """Releases in the code."""
    return sum(map(_is_signal, instructions(ptx)))


def waits(ptx: str) -> int:
    """Acquires in the code."""
    return sum(map(_is_wait, instructions(ptx)))


def dependent_launch_faults(ptx: str, written_before: Collection[int]) -> tuple[str, ...]:
    """written_before: numbers of the parameters that point to what earlier launches write."""
    code = instructions(ptx)
    at = [place for place, instruction in enumerate(code) if instruction.does("griddepcontrol", "wait")]
    if len(at) != 1:
        return (f"{len(at)} waits for the predecessor, not one",)
    sources = parameters_of_addresses(code)
    before, waits = before_wait(code)
    around = () if waits else ("there is a way around the wait",)
    return around + tuple(
        fault for instruction in before for fault in _early(instruction, sources, frozenset(written_before))
    )


def plain_accesses(ptx: str, parameters: Collection[int]) -> tuple[str, ...]:
    """Loads, stores and copies, neither relaxed nor ordered, of what parameters with these numbers point to.

    Words with tags have none: a plain access may be torn, kept in the L1, or done once in place of many times.
    """
    code = instructions(ptx)
    sources = parameters_of_addresses(code)
    found = [one for one in code if _in_global_memory(one) and not {"relaxed", *_ORDERED} & set(one.words)]
    touched = [(one, sources.get(one.address, frozenset()) & frozenset(parameters)) for one in found]
    return tuple(f"{one.name} of parameter {min(those)}" for one, those in touched if those)


def written_parameters(ptx: str) -> frozenset[int]:
    """Numbers of the parameters that the kernel writes through."""
    code = instructions(ptx)
    sources = parameters_of_addresses(code)
    stores = [one for one in code if _in_global_memory(one) and one.words[0] in ("st", "red", "atom")]
    return frozenset().union(*(sources.get(store.address, frozenset()) for store in stores))


def _faults_at(code: Sequence[Instruction], at: int, *, tagged: bool) -> Iterator[str]:
    instruction = code[at]
    if instruction.does("mbarrier") and "relaxed" in instruction.words:
        yield f"{instruction.name} orders nothing"
    if instruction.does("mbarrier", "arrive") and (between := _unordered_before(code, at)):
        yield f"{instruction.name} has no barrier before it, but {between}"
    if not _in_global_memory(instruction):
        return
    if not (tagged and _is_word(instruction)) and {"volatile", "relaxed"} & set(instruction.words):
        yield f"{instruction.name} orders nothing"
    elif instruction.does("red") or instruction.does("atom"):
        if not _ORDERED & set(instruction.words):
            yield f"{instruction.name} is relaxed, as every atomic without an order"
    if _ORDERED & set(instruction.words) and not _WIDE & set(instruction.words):
        yield f"{instruction.name} is not ordered for other multiprocessors"
    if _is_signal(instruction) and (between := _unordered_before(code, at)):
        yield f"{instruction.name} has no barrier before it, but {between}"
    if _is_wait(instruction) and (between := _unordered_after(code, at)):
        yield f"{instruction.name} has no barrier behind it, but {between}"


def _is_word(instruction: Instruction) -> bool:
    """A relaxed load or store of 32 bits, or of some side by side, each of which is one access."""
    relaxed = instruction.does("ld", "relaxed", "gpu") or instruction.does("st", "relaxed", "gpu")
    return relaxed and instruction.words[-1] in ("b32", "u32", "s32", "f32")


def _untagged(code: Sequence[Instruction]) -> Iterator[str]:
    """Words that are loaded and looked at by no comparison, or stored without a tag; copies are followed."""
    made, used = by_result(code), by_source(code)
    for instruction in filter(_is_word, code):
        place, words = instruction.transferred
        if instruction.does("ld") and not all(reaches(word, used, "xor") for word in words):
            yield f"{instruction.name} at {place} is compared with no tag"
        if instruction.does("st") and not all(reaches(word, made, "or", "lop3") for word in words):
            yield f"{instruction.name} at {place} has no tag put in"


def _unordered_before(code: Sequence[Instruction], at: int) -> str:
    """What stands between a signal and the barrier before it that must not; empty if nothing does."""
    for place in range(at - 1, -1, -1):
        instruction = code[place]
        if (instruction.is_barrier and not instruction.guard) or _is_mbarrier_wait(code, place):
            return ""
        if instruction.label:
            return f"the label {instruction.label}"
        if _touches_memory(instruction):
            return instruction.name
    return "the kernel's start"


def _is_mbarrier_wait(code: Sequence[Instruction], at: int) -> bool:
    """A loop that is left when the phase is complete: `loop: try_wait; @!complete bra loop`."""
    tries = code[at].does("mbarrier", "try_wait") or code[at].does("mbarrier", "test_wait")
    if not tries or not 0 < at < len(code) - 1:
        return False
    back = code[at + 1]
    return back.does("bra") and back.guard.startswith("!") and back.target == code[at - 1].label != ""


def _unordered_after(code: Sequence[Instruction], at: int) -> str:
    """As before, behind a wait; a spin goes back to the wait itself."""
    for instruction in code[at + 1 :]:
        if instruction.is_barrier and not instruction.guard:
            return ""
        if _touches_memory(instruction):
            return instruction.name
    return "the kernel's end"


def _early(instruction: Instruction, sources: dict[str, frozenset[int]], written: frozenset[int]) -> Iterator[str]:
    if not _in_global_memory(instruction):
        return
    if not instruction.does("ld") and not _copies_to_shared(instruction):
        yield f"{instruction.name} stands before the wait"
    elif early := sources.get(instruction.address, frozenset()) & written:
        yield f"{instruction.name} reads parameter {min(early)} before the wait"
    elif instruction.address not in sources:
        yield f"{instruction.name} reads from an address of unknown origin before the wait"


def _is_signal(instruction: Instruction) -> bool:
    return _in_global_memory(instruction) and bool({"release", "acq_rel", "sc"} & set(instruction.words))


def _is_wait(instruction: Instruction) -> bool:
    acquires = bool({"acquire", "acq_rel", "sc"} & set(instruction.words))
    return _in_global_memory(instruction) and acquires and not instruction.does("red")


def _touches_memory(instruction: Instruction) -> bool:
    """Loads, stores and copies of what others may see, and of shared memory."""
    return (
        instruction.words[:1] in [("ld",), ("st",), ("red",), ("atom",), ("cp",)] and "param" not in instruction.words
    )


def _copies_to_shared(instruction: Instruction) -> bool:
    places = [word for word in instruction.words if word.startswith("shared") or word == "global"]
    return instruction.does("cp") and places[-1:] == ["global"]


def _in_global_memory(instruction: Instruction) -> bool:
    """Also without a state space: a generic address may be anywhere."""
    if instruction.words[:1] not in [("ld",), ("st",), ("red",), ("atom",)]:
        return instruction.does("cp", "global") and "prefetch" not in instruction.words
    return not {"param", "local", "const", "shared", "shared::cta", "shared::cluster"} & set(instruction.words)
