"""Requests of one job to its server, repeated while the server is away."""

from __future__ import annotations

import ipaddress
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from perfci.errors import ServiceError, SettingsError

T = TypeVar("T")
Echo = Callable[[str], None]
# The server may be checking a large file.
_TIMEOUT = httpx.Timeout(15.0, read=120.0, write=60.0)
# It answered, and asks for another try: busy, too slow, too many, or a proxy before it has no server behind it.
_AGAIN = frozenset((408, 409, 425, 429))
# Said of this very result or job.
_JUDGED = frozenset((401, 403, 413, 415, 422))


class Refused(ServiceError):
    """The server has answered no, and will again. status: of HTTP. told: perfci itself said so, and why; otherwise
    something on the way did, that somebody may mend."""

    def __init__(self, message: str, *, next_step: str, status: int = 0, told: bool = False) -> None:
        super().__init__(message, next_step=next_step)
        self.status, self.told = status, told

    def __reduce__(self) -> tuple[object, ...]:
        return ServiceError(self.message, next_step=self.next_step).__reduce__()


class Unreachable(ServiceError):
    """The server has not answered for as long as it was waited for."""


class Again(Exception):
    """A try that may succeed later."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server that is away is waited for. The waits double from `first_s` to `longest_s`, each shortened at
    random by up to a half, so that the nodes of a room do not all come back at once."""

    seconds: float = 6 * 3600.0
    first_s: float = 1.0
    longest_s: float = 60.0

    def waits(self, rng: random.Random) -> Iterator[float]:
        wait = self.first_s
        while True:
            yield wait * rng.uniform(0.5, 1.0)
            wait = min(2 * wait, self.longest_s)


@dataclass(frozen=True, slots=True)
class Server:
    """A job's server. echo: told of every wait."""

    url: str
    http: httpx.Client
    echo: Echo
    rng: random.Random

    def patiently(self, work: Callable[[], T], patience: Patience) -> T:
        """Do `work`, again whenever it raises Again. Raises Unreachable, Refused, and what `work` raises."""
        until = time.monotonic() + patience.seconds
        for wait in patience.waits(self.rng):
            try:
                return work()
            except (Again, httpx.TransportError) as error:
                problem = " ".join((str(error) or type(error).__name__).split())[:200]
                if time.monotonic() + wait > until:
                    raise Unreachable(
                        f"{self.url} does not take part ({problem})",
                        next_step="start `perfci serve` there, or mend the network; nothing is lost",
                    ) from error
                self.echo(f"{self.url}: {problem}; trying again in {wait:.0f} s")
                time.sleep(wait)
        raise AssertionError("the waits never end")

    def ask(
        self,
        method: str,
        path: str,
        *,
        fine: tuple[int, ...] = (),
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        """One try. fine: statuses to return beside 2xx. Raises Again, Refused, httpx.TransportError."""
        answer = self.http.request(method, f"{self.url}{path}", headers=headers, **options)
        if answer.status_code not in fine:
            check(answer, self.url)
        return answer


@contextmanager
def server(job: Mapping[str, Any], *, echo: Echo, rng: random.Random | None = None) -> Iterator[Server]:
    """The job's server, with its token. Raises SettingsError for a job without either."""
    try:
        url, token = str(job["server"]).rstrip("/"), str(job["token"])
        host = urlsplit(url).hostname or ""
    except (KeyError, ValueError) as error:
        raise SettingsError(f"this job is handed over in no way ({error!r})", next_step="plan it again") from error
    # A proxy of the environment has no business between two processes of one machine.
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
    with httpx.Client(timeout=_TIMEOUT, trust_env=not _loopback(host), headers=headers) as http:
        yield Server(url, http, echo, rng or random.Random())


def check(answer: httpx.Response, url: str) -> None:
    """Raises Again or Refused unless the answer is a good one. Its body has been read."""
    status = answer.status_code
    if answer.is_success:
        return
    told = _told(answer)
    error, next_step = told or (answer.reason_phrase, "is this the URL of `perfci serve`?")
    if status >= 500 or status in _AGAIN:
        raise Again(f"{status} {error}")
    if answer.is_redirect:
        error, next_step = "it points elsewhere", "mend service.server in the control plane's perfci.toml"
    judged = told is not None and status in _JUDGED
    raise Refused(f"{url} refuses: {error} ({status})", next_step=next_step, status=status, told=judged)


def received(job: Mapping[str, Any], *, echo: Echo, patience: Patience | None = None) -> Mapping[int, str] | None:
    """sha256 by index of what the server has of the job's results; None when it does not answer.

    Raises Refused: nothing of this job will be taken, so that it need not be measured.
    """
    with server(job, echo=echo) as asked:
        try:
            found = asked.patiently(
                lambda: field(asked.ask("GET", "/v1/artifacts"), "artifacts"), patience or Patience(20.0)
            )
        except Unreachable:
            echo(f"{asked.url} does not answer; going on without it")
            return None
        return {int(each["index"]): str(each["sha256"]) for each in found}


def field(answer: httpx.Response, name: str) -> Any:
    """Of a JSON object. Raises Again where something else than perfci has answered."""
    try:
        return answer.json()[name]
    except (ValueError, KeyError, TypeError) as error:
        raise Again("what answers there is not perfci") from error


def _told(answer: httpx.Response) -> tuple[str, str] | None:
    try:
        body = answer.json()
        return _plain(body["error"]), _plain(body["next_step"])
    except (ValueError, KeyError, TypeError):
        return None


def _plain(text: object) -> str:
    return "".join(c if c.isprintable() else " " for c in str(text))[:400]


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
