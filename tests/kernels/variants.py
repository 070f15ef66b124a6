"""A module with a piece of its text replaced: a fault planted where only a compiler or a GPU would notice it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

Replacements = Mapping[str, tuple[tuple[str, str], ...]]
_PACKAGE = "kernels.llama"


@contextmanager
def planted(replacements: Replacements, folder: Path) -> Iterator[None]:
    """Within the block, `kernels.llama` is imported anew, with `replacements`: module -> pairs of old and new text.

    Only what is imported inside has them; what was imported before goes on as it was. Modules that are replaced are
    copied to `folder`, since Triton reads a kernel's text from its file. Raises ValueError when an old text does not
    occur: a fault that was not planted would be found by no check.
    """
    before = _taken_out()
    try:
        for name, pairs in replacements.items():
            _load(name, pairs, folder)
        yield
    finally:
        _taken_out()
        for name, module in before.items():
            sys.modules[name] = module
            _bind(name, module)


def _taken_out() -> dict[str, ModuleType]:
    """`from package import module` asks the package first: there too."""
    taken = {name: module for name, module in sys.modules.items() if name.startswith(_PACKAGE + ".")}
    for name in taken:
        parent, _, child = name.rpartition(".")
        vars(sys.modules[parent]).pop(child, None)
    for name in taken:
        del sys.modules[name]
    return taken


def _load(name: str, pairs: tuple[tuple[str, str], ...], folder: Path) -> None:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ValueError(f"there is no module {name}")
    text = Path(found.origin).read_text("utf-8")
    for old, new in pairs:
        if old not in text:
            raise ValueError(f"{name} does not hold {old!r}: the fault was not planted")
        text = text.replace(old, new)
    copy = folder / f"{name.replace('.', '_')}.py"
    copy.write_text(text, "utf-8")
    spec = importlib.util.spec_from_file_location(name, copy)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    _bind(name, module)


def _bind(name: str, module: ModuleType) -> None:
    parent, _, child = name.rpartition(".")
    setattr(importlib.import_module(parent), child, module)
