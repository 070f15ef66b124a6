"""PTX as a list of instructions, and which of a kernel's parameters an address comes from.

Read from text, for checks of what was compiled (`memory_order`); NVIDIA's "PTX ISA" is the reference of the syntax.
Knows what Triton writes: one entry, no calls, no address that was loaded from memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LINE_DIRECTIVE = re.compile(r"^\s*\.(?:loc|file|version|target|address_size)\b[^\n]*", re.MULTILINE)
_LABEL = re.compile(r"^([$%\w]+):\s*")
_INSTRUCTION = re.compile(r"^(?:@(!?[%\w]+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.DOTALL)
_REGISTER = re.compile(r"%?[A-Za-z_$][\w$]*")
_BRACES = "{} \t\n"
_PARAMETER = re.compile(r"_param_(\d+)")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. guard: its predicate, empty without one; a `label:` is an instruction with a name alone.

    words: the operation's parts, `("red", "release", "gpu", "global", "add", "u32")`.
    """

    words: tuple[str, ...]
    operands: str = ""
    guard: str = ""
    label: str = ""

    @property
    def name(self) -> str:
        return ".".join(self.words)

    def does(self, operation: str, *modifiers: str) -> bool:
        """Whether it is this operation and has each of these among its modifiers."""
        return self.words[:1] == (operation,) and set(modifiers) <= set(self.words)

    @property
    def is_barrier(self) -> bool:
        """Of the threads of a block, or of a part of them that has more than one warp."""
        return "warp" not in self.words and (self.does("bar", "sync") or self.does("barrier", "sync"))

    @property
    def address(self) -> str:
        """In global memory: what stands in brackets, without an offset. A copy names where it goes to first."""
        found = [part.strip() for part in re.findall(r"\[([^\]+,]+)", self.operands)]
        to_shared = self.does("cp") and any(word.startswith("shared") for word in self.words) and len(found) > 1
        return found[1] if to_shared else found[0] if found else ""

    @property
    def transferred(self) -> tuple[str, list[str]]:
        """Of a load or store: the address, and the registers that go to memory or come from there."""
        outside = re.sub(r"\[[^\]]*\]", "", self.operands)
        return self.address, _REGISTER.findall(outside)

    @property
    def target(self) -> str:
        """The label that a branch goes to."""
        return self.operands.strip() if self.does("bra") else ""


def instructions(ptx: str) -> tuple[Instruction, ...]:
    """Of the whole text, in its order; declarations and debug information left out. Labels where something jumps to."""
    body = _LINE_DIRECTIVE.sub("", _COMMENT.sub("", ptx)).split("\n\t.section")[0]
    found: list[Instruction] = []
    for statement in body.split(";"):
        text = statement.strip().lstrip(_BRACES)
        while label := _LABEL.match(text):
            found.append(Instruction((), label=label[1]))
            text = text[label.end() :].lstrip(_BRACES)
        parsed = _INSTRUCTION.match(text)
        if parsed is not None:
            guard, name, operands = parsed.groups()
            found.append(Instruction(tuple(name.split(".")), operands.strip(), guard or ""))
    targets = {instruction.target for instruction in found}
    return tuple(one for one in found if one.words or one.label in targets)


def parameters_of_addresses(code: Sequence[Instruction]) -> dict[str, frozenset[int]]:
    """Register -> numbers of the kernel's parameters that its value as an address comes from.

    Whatever is loaded from memory comes from none: it may be an index, not a pointer.
    """
    known: dict[str, frozenset[int]] = {}
    changed = True
    while changed:
        changed = False
        for instruction in code:
            results, sources = _data_flow(instruction)
            found = frozenset(int(n) for n in _PARAMETER.findall(instruction.operands))
            found = found.union(*(known.get(source, frozenset()) for source in sources))
            for register in results:
                if register not in known or not found <= known[register]:
                    known[register] = known.get(register, frozenset()) | found
                    changed = True
    return known


def _data_flow(instruction: Instruction) -> tuple[list[str], list[str]]:
    """Registers that it writes, and those whose value goes into them."""
    if (
        not instruction.words
        or instruction.does("bra")
        or (instruction.does("ld") and "param" not in instruction.words)
    ):
        return [], []
    first, _, rest = instruction.operands.partition(",")
    if first.startswith("{"):
        first, _, rest = instruction.operands.partition("}")
    return _REGISTER.findall(first), _REGISTER.findall(rest)


Links = Mapping[str, Sequence[tuple[Instruction, Sequence[str]]]]
"""Register -> instructions that it is tied to, each with the registers at the instruction's other end."""


def by_result(code: Sequence[Instruction]) -> Links:
    """From a register to what writes it, and what goes in there."""
    found: dict[str, list[tuple[Instruction, Sequence[str]]]] = {}
    for instruction in code:
        results, sources = _data_flow(instruction)
        for register in results:
            found.setdefault(register, []).append((instruction, sources))
    return found


def by_source(code: Sequence[Instruction]) -> Links:
    """From a register to what reads it, and what comes out there."""
    found: dict[str, list[tuple[Instruction, Sequence[str]]]] = {}
    for instruction in code:
        results, sources = _data_flow(instruction)
        for register in sources:
            found.setdefault(register, []).append((instruction, results))
    return found


def reaches(register: str, links: Links, *operations: str) -> bool:
    """Whether one of these operations is tied to the register, by itself or through copies of it."""
    seen: set[str] = set()
    left = [register]
    while left:
        here = left.pop()
        seen.add(here)
        for instruction, others in links.get(here, ()):
            if instruction.words[0] in operations:
                return True
            if instruction.words[0] == "mov":
                left += [other for other in others if other not in seen]
    return False
