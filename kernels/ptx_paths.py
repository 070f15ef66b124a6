"""Which instructions a thread may execute before it waits for its predecessor, along every way through PTX.

A wait in the first pass of a loop stands behind a branch that the text alone does not decide: whether this is the first
pass. Integers that are known are therefore followed (moves, sums and comparisons of constants); a branch that they
decide goes one way, any other goes both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from kernels.ptx import Instruction

_PASSES = 64  # through one branch; whoever is still there may be in any pass
_NUMBER = re.compile(r"-?\d+|-?0x[0-9a-fA-F]+")
_COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}

Known = Mapping[str, int]


def before_wait(code: Sequence[Instruction]) -> tuple[tuple[Instruction, ...], bool]:
    """What may be executed before `griddepcontrol.wait`, in the text's order, and whether every way reaches that."""
    labels = {instruction.label: place for place, instruction in enumerate(code) if instruction.label}
    executed: set[int] = set()
    waits = True
    passes: Counter[int] = Counter()
    seen: set[tuple[int, frozenset[tuple[str, int]]]] = set()
    open_ways: list[tuple[int, dict[str, int]]] = [(0, {})]
    while open_ways:
        at, known = open_ways.pop()
        while at < len(code) and not code[at].does("griddepcontrol", "wait") and not _leaves(code[at]):
            executed.add(at)
            _execute(code[at], known)
            at += 1
        if at == len(code) or not _leaves(code[at]):
            waits = waits and at < len(code)
            continue
        executed.add(at)
        passes[at] += 1
        known = known if passes[at] <= _PASSES else {}
        for place in _after_branch(code[at], at, labels, len(code), known):
            state = (place, frozenset(known.items()))
            if state not in seen:
                seen.add(state)
                open_ways.append((place, dict(known)))
    return tuple(code[place] for place in sorted(executed)), waits


def _leaves(instruction: Instruction) -> bool:
    return instruction.does("bra") or instruction.does("ret") or instruction.does("exit")


def _after_branch(
    instruction: Instruction, at: int, labels: Mapping[str, int], end: int, known: Known
) -> tuple[int, ...]:
    """Where it may go on: the next instruction, a label, or the kernel's end."""
    there = labels[instruction.target] if instruction.does("bra") else end
    if not instruction.guard:
        return (there,)
    taken = known.get(instruction.guard.lstrip("!"))
    if taken is None:
        return (at + 1, there)
    return (there,) if bool(taken) != instruction.guard.startswith("!") else (at + 1,)


def _execute(instruction: Instruction, known: dict[str, int]) -> None:
    """Follow a whole number through one instruction; whatever else it writes is not known from then on."""
    if not instruction.words or instruction.words[0] in ("st", "bar", "griddepcontrol"):
        return
    result, *sources = [operand.strip() for operand in instruction.operands.split(",")]
    values = [_value(source, known) for source in sources]
    found = None
    if not instruction.guard and None not in values:
        found = _computed(instruction, [value for value in values if value is not None])
    for register in re.findall(r"%\w+", result if "{" not in result else instruction.operands.partition("}")[0]):
        known.pop(register, None)
        if found is not None:
            known[register] = found


def _value(source: str, known: Known) -> int | None:
    if _NUMBER.fullmatch(source):
        return int(source, 0)
    return known.get(source)


def _computed(instruction: Instruction, values: Sequence[int]) -> int | None:
    words = instruction.words
    if words[-1][0] == "f":  # floating point
        return None
    if words[0] == "mov" and len(values) == 1:
        return values[0]
    if words[0] in ("add", "sub") and len(values) == 2 and set(words[1:]) <= {"s32", "s64", "u32", "u64"}:
        return values[0] + values[1] if words[0] == "add" else values[0] - values[1]
    if words[0] == "setp" and len(values) == 2 and words[1] in _COMPARE:
        if words[-1][0] == "u" and min(values) < 0:
            return None
        return int(_COMPARE[words[1]](values[0], values[1]))
    return None
