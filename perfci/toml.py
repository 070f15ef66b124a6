"""A TOML file's tables as frozen dataclasses: every key known, every value of its type, or an error that says so."""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from perfci.errors import SettingsError

T = TypeVar("T")


def table(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SettingsError(f"{where} = {value!r} is no table", next_step=f"write [{where}]")
    return value


def tables(body: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [(name, table(f"{kind}.{name}", value)) for name, value in table(kind, body.get(kind, {})).items()]


def built(cls: type[T], where: str, table: dict[str, Any], **fixed: str) -> T:
    hints = get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.name not in fixed}  # type: ignore[arg-type]
    check_keys(where, table, set(fields))
    values = {key: _converted(f"{where}.{key}", value, hints[key]) for key, value in table.items()}
    absent = [n for n, f in fields.items() if n not in table and f.default is dataclasses.MISSING]
    if absent:
        raise SettingsError(f"[{where}] lacks {', '.join(absent)}", next_step="add it")
    return cls(**fixed, **values)


def _converted(where: str, value: object, hint: Any) -> object:
    for text in value if isinstance(value, list) else (value,):
        # No path, branch or argument has one; a long command may have lines.
        if isinstance(text, str) and any(c < " " and c not in "\n\t" for c in text):
            raise SettingsError(f"{where} = {text!r} has a control character", next_step="write it without")
    if get_origin(hint) is tuple and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    allowed = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, tuple(a for a in allowed if isinstance(a, type))):
        wanted = (
            "a list of strings"
            if get_origin(hint) is tuple
            else " or ".join(getattr(a, "__name__", "?") for a in allowed)
        )
        raise SettingsError(f"{where} = {value!r}", next_step=f"use {wanted}")
    return value


def check_keys(where: str, table: Mapping[str, object], known: set[str]) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
            raise SettingsError(f"{where}: unknown setting {key!r}", next_step=hint)
