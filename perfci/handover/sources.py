"""A job's source bundle from the server into the node's cache: resumed where it broke off, and verified."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfci.bench.ownership import exclusive
from perfci.errors import ServiceError, SettingsError
from perfci.handover.client import Again, Echo, Patience, Refused, Server, check, server

# Newest first; a bundle that was unpacked is needed no more.
KEPT = 20
_TRIES = 3
_STEP = 8 * 1024 * 1024
_PATIENCE = Patience(3600.0)


def fetch(job: Mapping[str, Any], cache: Path, *, echo: Echo, patience: Patience | None = None) -> Path:
    """The job's bundle below `cache`. Raises Unreachable, Refused, and ServiceError where there is no room for it."""
    try:
        sha256, size = str(job["bundle"]["sha256"]), int(job["bundle"]["bytes"])
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise ValueError(sha256)
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(f"this job names no bundle ({error!r})", next_step="plan it again") from error
    folder = cache / "bundles"
    path = folder / f"{sha256}.bundle"
    try:
        with exclusive(folder / f"{sha256}.lock"):
            if path.is_file() and _sha256(path) == sha256:
                os.utime(path)
                return path
            with server(job, echo=echo) as to:
                part = folder / f"{sha256}.part"
                for left in reversed(range(_TRIES)):
                    download = _Download(to, part, sha256, size)
                    to.patiently(download.go, patience or _PATIENCE)
                    if _sha256(part) == sha256:
                        break
                    part.unlink()
                    if not left:
                        raise ServiceError(
                            f"{to.url} sends another bundle than {sha256[:16]}", next_step="look at the server's disk"
                        )
            part.replace(path)
    except OSError as error:
        raise ServiceError(
            f"{error.filename or path}: {error.strerror}", next_step=f"make room for {cache}, then try again"
        ) from error
    echo(f"fetched the sources, {size / 1e6:.1f} MB")
    _trim(folder)
    return path


class _Download:
    def __init__(self, to: Server, part: Path, sha256: str, size: int) -> None:
        self._to, self._part, self._sha256, self._size = to, part, sha256, size

    def go(self) -> None:
        """One try: what is missing of the part. Raises Again, Refused, httpx.TransportError, OSError."""
        there = self._part.stat().st_size if self._part.exists() else 0
        if there == self._size:
            return
        if there > self._size:
            self._part.unlink()
            there = 0
        headers = {"Range": f"bytes={there}-"} if there else {}
        with self._to.http.stream("GET", f"{self._to.url}/v1/bundles/{self._sha256}", headers=headers) as answer:
            if not answer.is_success:
                answer.read()
                check(answer, self._to.url)
            resumed = answer.status_code == 206
            if resumed and not answer.headers.get("content-range", "").startswith(f"bytes {there}-"):
                raise Again("the server sends another part than was asked for")
            with self._part.open("ab" if resumed else "wb") as stream:
                for chunk in answer.iter_raw():
                    there = stream.tell() + len(chunk)
                    if there > self._size:
                        raise Refused(
                            f"{self._to.url} sends more than {self._size} bytes", next_step="plan the job again"
                        )
                    stream.write(chunk)
                stream.flush()
                os.fsync(stream.fileno())
        if there != self._size:
            raise Again(f"{there} of {self._size} bytes came")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, hashlib.sha256).hexdigest()


def _trim(folder: Path) -> None:
    by_age = sorted(folder.glob("*.bundle"), key=lambda p: p.stat().st_mtime, reverse=True)
    for old in by_age[KEPT:]:
        old.unlink(missing_ok=True)
