"""The public keys of the nodes that may work here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfci.errors import SettingsError
from perfci.runner import keys, roster
from tests.runner.edge import NOW


def public(folder: Path, name: str) -> str:
    return json.dumps(keys.public_jwk(keys.private(folder / name / "node.pem")))


def test_a_key_is_added_once_and_listed(tmp_path: Path) -> None:
    text, nodes = public(tmp_path, "a"), tmp_path / "nodes"
    first = roster.add(nodes, "gpu-a", text, replace=False, now=NOW)
    assert roster.add(nodes, "gpu-a", text, replace=False, now=NOW.replace(year=2028)) == first
    assert roster.listed(nodes) == (first,)


def test_another_key_takes_a_name_only_when_that_is_said(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    roster.add(nodes, "gpu-a", public(tmp_path, "old"), replace=False, now=NOW)
    with pytest.raises(SettingsError, match="has another key; add --replace"):
        roster.add(nodes, "gpu-a", public(tmp_path, "new"), replace=False, now=NOW)
    replaced = roster.add(nodes, "gpu-a", public(tmp_path, "new"), replace=True, now=NOW)
    assert roster.listed(nodes) == (replaced,)


def test_one_key_has_one_name(tmp_path: Path) -> None:
    nodes, text = tmp_path / "nodes", public(tmp_path, "a")
    roster.add(nodes, "gpu-a", text, replace=False, now=NOW)
    with pytest.raises(SettingsError, match="node 'gpu-a' has this key already"):
        roster.add(nodes, "gpu-b", text, replace=False, now=NOW)


def test_a_private_key_is_refused(tmp_path: Path) -> None:
    text = json.dumps({**json.loads(public(tmp_path, "a")), "d": "AAAA"})
    with pytest.raises(SettingsError, match="private key, which never leaves its node"):
        roster.add(tmp_path / "nodes", "gpu-a", text, replace=False, now=NOW)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}', "ssh-ed25519 AAAA"])
def test_what_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="no node's public key"):
        roster.add(tmp_path / "nodes", "gpu-a", text, replace=False, now=NOW)
    assert not (tmp_path / "nodes").exists()


@pytest.mark.parametrize("name", ["", "../x", "jwks", ".hidden", "a b", "a/b", "x" * 64])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="no usable name"):
        roster.add(tmp_path / "nodes", name, public(tmp_path, "a"), replace=False, now=NOW)
    assert roster.find(tmp_path / "nodes", name) is None


def test_a_damaged_file_is_nobodys_key(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    roster.add(nodes, "gpu-a", public(tmp_path, "a"), replace=False, now=NOW)
    (nodes / "gpu-a.json").write_text('{"x": ')
    assert roster.listed(nodes) == ()


def test_to_remove_an_unknown_node_names_the_known_ones(tmp_path: Path) -> None:
    roster.add(tmp_path / "nodes", "gpu-a", public(tmp_path, "a"), replace=False, now=NOW)
    with pytest.raises(SettingsError, match="known: gpu-a"):
        roster.remove(tmp_path / "nodes", "gpu-b")
