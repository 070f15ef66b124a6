"""Results from the outgoing folder to the server: at least once each, until it says that it has them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfci import artifact
from perfci.errors import PerfciError, ServiceError
from perfci.handover import parcels
from perfci.handover.client import Again, Echo, Patience, Refused, Server, Unreachable, field, server
from perfci.handover.parcels import Parcel

# A proxy on the way may hold a request back until it has the whole of it: pieces make progress all the same. nginx
# takes no larger body unless it is told to.
CHUNK = 1024 * 1024
_ONCE = Patience(0.0)
# What arrived was another file: the connection or the server's disk did that, and it may do better.
_DAMAGED = 422
_TRIES = 3


def deliver(
    job: Mapping[str, Any],
    paths: Sequence[Path],
    *,
    outgoing: Path,
    echo: Echo,
    patience: Patience | None = None,
) -> tuple[Path, ...]:
    """Hand the job's results over, and what earlier jobs have left; the paths of those that the server has now.

    A result is removed here when the server has it. While it does not answer it is asked again, for the job's own
    results as long as `patience` says and once for the others'; they wait in `outgoing` for the next call.
    Raises Unreachable or Refused when one of the job's own was not taken, after all others were tried.
    """
    with parcels.parcel(outgoing, job) as mine:
        own = [mine.put(path) for path in paths]
        return deliver_parcel(mine, own, outgoing=outgoing, echo=echo, patience=patience)


def deliver_parcel(
    mine: Parcel, own: Sequence[Path], *, outgoing: Path, echo: Echo, patience: Patience | None = None
) -> tuple[Path, ...]:
    """`deliver`, for who holds the job's parcel already."""
    done: list[Path] = []
    problems: list[PerfciError] = []
    _hand_over(mine, own, done, problems, echo=echo, patience=patience or Patience())
    if not any(isinstance(problem, Unreachable) for problem in problems):
        for folder in parcels.leftovers(outgoing):
            if folder == mine.folder:
                continue
            with suppress(FileNotFoundError), parcels.leftover(folder) as left:  # another job took it along
                if left is not None:
                    _hand_over(left, left.results(), done, [], echo=echo, patience=_ONCE)
    if problems:
        raise problems[0]
    return tuple(done)


def _hand_over(
    parcel: Parcel,
    paths: Sequence[Path],
    done: list[Path],
    problems: list[PerfciError],
    *,
    echo: Echo,
    patience: Patience,
) -> None:
    """Adds to `done` and `problems`. After one that could not be sent the rest is left for later."""
    if not paths:
        return
    try:
        with server(parcel.job, echo=echo) as to:
            for number, path in enumerate(paths, 1):
                try:
                    state = _send(to, path, patience)
                except Refused as error:
                    problems.append(error)
                    kept = parcel.refuse(path, str(error)) if error.told else path
                    echo(f"{error}; the result is kept at {kept}")
                    continue
                path.unlink()
                done.append(path)
                known = "" if state == "stored" else f" ({state})"
                echo(f"delivered {number} of {len(paths)} to {to.url}: {path.name}{known}")
    except ServiceError as error:
        problems.append(error)
        echo(f"{error}; {len(parcel.results())} results wait in {parcel.folder}")
    except PerfciError as error:  # a job that tells no server: it was not made here
        problems.append(error)
        echo(str(error))


def _send(to: Server, path: Path, patience: Patience) -> str:
    """What the server made of it: stored, known or superseded. Raises Unreachable, Refused."""
    data = artifact.contents(path, limit=artifact.MAX_BYTES)
    if len(data) > artifact.MAX_BYTES:
        raise Refused(
            f"{path.name} is larger than {artifact.MAX_BYTES} bytes", next_step="make the suite smaller", told=True
        )
    sending = _Sending(to, data, hashlib.sha256(data).hexdigest())
    for left in reversed(range(_TRIES)):
        try:
            return to.patiently(sending.go, patience)
        except Refused as error:
            if error.status != _DAMAGED or not left or "sha256" not in error.message:
                raise
            sending.begun = False
    raise AssertionError("unreachable")


class _Sending:
    """One file on its way. begun: something of it may be there; then the server is asked where to go on."""

    def __init__(self, to: Server, data: bytes, sha256: str) -> None:
        self._to, self._data, self._sha256 = to, data, sha256
        self.begun = False

    def go(self) -> str:
        """One try, piece by piece. Raises Again, Refused, httpx.TransportError."""
        path = f"/v1/artifacts/{self._sha256}"
        offset = 0
        if self.begun:
            answer = self._to.ask("HEAD", path)
            if answer.headers.get("upload-complete") == "?1":
                return "known"
            offset = _offset(answer.headers, len(self._data))
        self.begun = True
        while True:
            piece = self._data[offset : offset + CHUNK]
            headers = {"Upload-Offset": str(offset), "Upload-Length": str(len(self._data))}
            answer = self._to.ask("PUT", path, content=piece, headers=headers)
            if answer.status_code != 202:
                return str(field(answer, "state"))
            offset = _offset(answer.headers, len(self._data))


def _offset(headers: Mapping[str, str], length: int) -> int:
    text = headers.get("upload-offset", "")
    if not (text.isascii() and text.isdigit()) or int(text) > length:
        raise Again(f"the server says it has {text[:20]!r} of {length} bytes")
    return min(int(text), length - 1)  # a whole part whose end was cut off is sent its last byte again
