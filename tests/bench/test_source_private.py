"""Repositories that want a key or a token: who gets to see it, and what is said without it."""

from __future__ import annotations

import base64
import os
import shutil
from pathlib import Path

import pytest

from perfci.bench import source
from perfci.bench.checkout import worktree
from perfci.bench.source import mirror
from perfci.config import Settings, Suite
from perfci.errors import SourceError
from tests.bench.forge import Forge, serving
from tests.bench.repositories import Repository

TOKEN = "the token of these tests"
# In place of ssh: notes how it was called, then runs git's server program here.
SSH = """#!/bin/sh
printf '%s\\n' "$@" > "{log}"
for last; do :; done
case "$*" in
    *nobody@*) echo "nobody@forge: Permission denied (publickey)." >&2; exit 255 ;;
    *stranger@*) echo "Host key verification failed." >&2; exit 255 ;;
esac
exec sh -c "$last"
"""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "subject")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


# ------------------------------------------------------------------------------------------ ssh


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of the last call of ssh, an argument a line."""
    programs, log = tmp_path / "bin", tmp_path / "ssh.log"
    programs.mkdir()
    (programs / "ssh").write_text(SSH.format(log=log))
    (programs / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    return log


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "deploy key"
    path.write_text("a private key")
    path.chmod(0o600)
    return path


def test_ssh_gets_the_deploy_key_and_no_other(repository: Repository, cache: Path, ssh: Path, key: Path) -> None:
    sha = repository.commit({"a": "1"})
    found = mirror(f"git@forge.example:{repository.folder}", cache, key=str(key))
    assert found.branch("main")[0].sha == sha
    said = ssh.read_text().splitlines()
    assert said[said.index("-i") + 1] == str(key)
    for option in ("IdentitiesOnly=yes", "IdentityAgent=none", "BatchMode=yes"):
        assert option in said
    assert said[said.index("-F") + 1] == "/dev/null", "the user's settings may name more keys"
    assert str(key) not in repr(found)


def test_without_a_key_the_users_own_ssh_is_used(
    repository: Repository, cache: Path, ssh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a": "1"})
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -o User=mine")
    mirror(f"ssh://forge.example{repository.folder}", cache)
    assert "User=mine" in ssh.read_text().splitlines()
    assert "-i" not in ssh.read_text().splitlines()


def test_a_key_that_ssh_would_refuse_is_told_before(cache: Path, ssh: Path, key: Path) -> None:
    with pytest.raises(SourceError, match=r"gone: No such file.*; name a key file"):
        mirror("git@forge.example:a.git", cache, key=f"{key}-gone")
    key.chmod(0o640)
    with pytest.raises(SourceError, match=r"is open to other users; chmod 600"):
        mirror("git@forge.example:a.git", cache, key=str(key))
    assert not ssh.exists(), "nobody was asked"


def test_what_ssh_says_is_told_with_what_to_do(cache: Path, ssh: Path, key: Path) -> None:
    with pytest.raises(SourceError, match=r"Permission denied \(publickey\)\.; set the suite's `deploy_key`"):
        mirror("nobody@forge.example:a.git", cache)
    with pytest.raises(SourceError, match=r"Permission denied \(publickey\)\.; let .*deploy key read it"):
        mirror("nobody@forge.example:a.git", cache, key=str(key))
    with pytest.raises(SourceError, match=r"Host key verification failed\.; add the host's key to .*known_hosts"):
        mirror("stranger@forge.example:a.git", cache, key=str(key))


def test_a_suites_key_is_a_file_beside_its_settings_or_a_variable(tmp_path: Path) -> None:
    def key_of(text: str) -> str:
        return source.deploy_key(Settings(root=tmp_path), Suite(name="s", repo="r", run="x", deploy_key=text))

    assert key_of("keys/one") == str(tmp_path / "keys" / "one")
    assert key_of("/etc/one") == "/etc/one"
    assert key_of("env:FORGE_TOKEN") == "env:FORGE_TOKEN"
    assert key_of("") == ""


# ------------------------------------------------------------------------------------------ https


def published(repository: Repository, folder: Path, name: str) -> None:
    repository.git("clone", "--quiet", "--bare", str(repository.folder), str(folder / name))


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_a_token_opens_its_host_and_is_kept_nowhere(
    repository: Repository, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit({"lib.h": "1"})
    published(inner, tmp_path / "forge", "inner.git")
    repository.commit({"kernels/a": "1"})
    repository.git("submodule", "--quiet", "add", str(inner.folder), "kernels/inner")
    repository.git("config", "-f", ".gitmodules", "submodule.kernels/inner.url", "../inner.git")
    sha = repository.commit({})
    published(repository, tmp_path / "forge", "subject.git")
    monkeypatch.setenv("FORGE_TOKEN", f"{TOKEN}\n")
    with serving(tmp_path / "forge", TOKEN) as forge:
        found = mirror(f"{forge.url}/subject.git", cache, key="env:FORGE_TOKEN")
        with worktree(found, sha, ("kernels",), tmp_path / "tree") as tree:
            assert (tree / "kernels" / "inner" / "lib.h").read_text() == "1", "a submodule on the same host"
        assert set(forge.asked) == {"", basic("x-access-token", TOKEN)}
        mirror(f"{forge.url.replace('://', '://gitlab+deploy@')}/inner.git", cache, key="env:FORGE_TOKEN")
        assert basic("gitlab+deploy", TOKEN) in forge.asked
    assert TOKEN not in repr(found)
    assert not [path for path in cache.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_a_token_is_not_shown_to_the_host_of_a_submodule(
    repository: Repository, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit({"lib.h": "1"})
    published(inner, tmp_path / "elsewhere", "inner.git")
    monkeypatch.setenv("FORGE_TOKEN", TOKEN)
    with serving(tmp_path / "elsewhere", "another") as other, serving(tmp_path / "forge", TOKEN) as forge:
        repository.git("submodule", "--quiet", "add", str(inner.folder), "inner")
        repository.git("config", "-f", ".gitmodules", "submodule.inner.url", f"{other.url}/inner.git")
        sha = repository.commit({"a": "1"})
        published(repository, tmp_path / "forge", "subject.git")
        found = mirror(f"{forge.url}/subject.git", cache, key="env:FORGE_TOKEN")
        with pytest.raises(SourceError, match="could not read Username"), worktree(found, sha, (), tmp_path / "tree"):
            pass
        assert set(other.asked) == {""}


def test_a_token_that_is_missing_wrong_or_would_travel_in_the_clear_is_told(
    repository: Repository, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.commit({"a": "1"})
    published(repository, tmp_path / "forge", "subject.git")
    with serving(tmp_path / "forge", TOKEN) as forge:
        url = f"{forge.url}/subject.git"
        with pytest.raises(SourceError, match=r"could not read Username.*; set the suite's `deploy_key`"):
            mirror(url, cache)
        with pytest.raises(SourceError, match="there is no variable FORGE_TOKEN"):
            mirror(url, cache, key="env:FORGE_TOKEN")
        monkeypatch.setenv("FORGE_TOKEN", "wrong-one")
        with pytest.raises(SourceError, match=r"Authentication failed.*; let env:FORGE_TOKEN read it") as caught:
            mirror(url, cache, key="env:FORGE_TOKEN")
        assert "wrong-one" not in str(caught.value)
        for clear in ("http://forge.example/a.git", "git@forge.example:a.git"):
            with pytest.raises(SourceError, match="is a token, which needs https"):
                mirror(clear, cache, key="env:FORGE_TOKEN")


@pytest.mark.parametrize("form", ["{inner}", "file://{inner}", "inner", "~/inner"])
def test_a_forges_repository_cannot_name_one_of_this_machine_as_its_submodule(
    repository: Repository, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    inner = Repository(tmp_path / "inner")
    inner.commit({"secret": "1"})
    repository.git("submodule", "--quiet", "add", str(inner.folder), "inner")
    repository.git("config", "-f", ".gitmodules", "submodule.inner.url", form.format(inner=inner.folder))
    sha = repository.commit({"a": "1"})
    published(repository, tmp_path / "forge", "subject.git")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with serving(tmp_path / "forge", "") as forge:
        found = mirror(f"{forge.url}/subject.git", cache)
        with pytest.raises(SourceError, match="names the local path"), worktree(found, sha, (), tmp_path / "tree"):
            pass
    assert not (tmp_path / "tree").exists()


def test_a_forge_that_is_away_is_told_by_name(cache: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "") as forge:
        gone: Forge = forge
    shutil.rmtree(cache, ignore_errors=True)
    with pytest.raises(SourceError, match=r"127\.0\.0\.1.*cannot be read") as caught:
        mirror(f"{gone.url}/a.git", cache)
    assert "\n" not in str(caught.value)
