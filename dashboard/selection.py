"""Selections that live in the URL, so that whatever is on the screen can be linked.

The URL is read when a page opens and whenever somebody else changed it (a link, the back button); a widget writes
it. A value in the URL that is not on offer is passed over: it is foreign input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

T = TypeVar("T", bound=str)


def one(label: str, options: Sequence[T], *, key: str, default: T | None = None, name: Callable[[T], str] = str) -> T:
    """A select box; `options` is not empty."""
    state = f"select-{key}"
    if _changed(key) and (wanted := _offered(st.query_params.get(key), options)) is not None:
        st.session_state[state] = wanted
    if st.session_state.get(state) not in options:
        st.session_state[state] = default if default in options else options[0]
    chosen: T = st.selectbox(label, options, key=state, format_func=name)
    _remember(key, [chosen])
    return chosen


def some(label: str, options: Sequence[str], *, key: str, default: Sequence[str]) -> tuple[str, ...]:
    """A choice of several; none chosen means all of `default`."""
    state = f"select-{key}"
    if _changed(key):
        st.session_state[state] = [value for value in st.query_params.get_all(key) if value in options]
    chosen = [value for value in st.session_state.get(state, []) if value in options]
    st.session_state[state] = chosen or [value for value in default if value in options]
    picked: list[str] = st.multiselect(label, options, key=state, wrap=True)
    _remember(key, picked)
    return tuple(picked) or tuple(default)


def given(key: str) -> str:
    return st.query_params.get(key, "")


def give(key: str, value: str) -> None:
    """An empty value leaves the URL."""
    if value:
        st.query_params[key] = value
    else:
        st.query_params.pop(key, None)


def _changed(key: str) -> bool:
    return st.query_params.get_all(key) != st.session_state.get(f"url-{key}")


def _remember(key: str, values: Sequence[str]) -> None:
    if st.query_params.get_all(key) != list(values):
        st.query_params[key] = list(values)
    st.session_state[f"url-{key}"] = list(values)


def _offered(value: str | None, options: Sequence[T]) -> T | None:
    return next((option for option in options if option == value), None)
