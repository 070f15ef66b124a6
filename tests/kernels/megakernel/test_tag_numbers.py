"""The tags of the kernel's words, over wrap-arounds of the numbers that they are made of."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernels.llama.megakernel.tags import tag, write_number


def kernel_tag(repository: Path) -> Callable[..., Any]:
    """The kernel's own `tag_of`, as Python (a process that interprets kernels cannot import Gluon)."""
    source = ast.parse((repository / "kernels/llama/megakernel/words.py").read_text("utf-8"))
    (function,) = (node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == "tag_of")
    function.decorator_list = []
    for argument in function.args.args:
        argument.annotation = None
    found: dict[str, Any] = {}
    exec(compile(ast.Module([function], []), "tag_of", "exec"), found)
    return found["tag_of"]  # type: ignore[no-any-return]


def as_int32(number: int) -> torch.Tensor:
    return torch.tensor((number + (1 << 31)) % (1 << 32) - (1 << 31), dtype=torch.int32)


@pytest.mark.parametrize("layers", [1, 2, 16, 28])
@pytest.mark.parametrize("epoch", [1, (1 << 27) - 1, 1 << 30, (1 << 31) - 1, (1 << 32) - 1])
def test_the_kernel_s_tags_are_the_specification_s_and_tell_consecutive_writes_apart(
    epoch: int, layers: int, repository: Path
) -> None:
    tag_of = kernel_tag(repository)
    writes = [(epoch + later, layer) for later in range(2) for layer in range(layers)]
    kernel = [int(tag_of(as_int32(step), layer, layers)) for step, layer in writes]
    assert kernel == [tag(write_number(step, layer, layers)) for step, layer in writes]
    assert {1, 2, 3} >= set(kernel)
    assert all(one != other for one, other in itertools.pairwise(kernel))
