"""A message as a letter, handed to one SMTP server.

TLS from the start on port 465; elsewhere where the server offers it, its certificate checked. A password goes only
through TLS, or to this machine itself.
"""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from perfci.notify.attempt import Answer, Attempt, Delivery
from perfci.notify.message import Message, line

STEP_S = 10.0
_TLS_PORT = 465
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Server:
    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)


def is_address(text: str) -> bool:
    """ASCII, without a display name."""
    return _ADDRESS.fullmatch(text) is not None


def letter(message: Message, *, sender: str, to: tuple[str, ...], delivery: str, at: datetime) -> EmailMessage:
    """delivery: the same for the same message, so that a mail program shows a second copy as one."""
    made = EmailMessage(policy=SMTP)
    made["Subject"] = message.title
    made["From"] = sender
    made["To"] = ", ".join(to)
    made["Date"] = format_datetime(at)
    made["Message-ID"] = f"<{delivery}@perfci.invalid>"
    made["Auto-Submitted"] = "auto-generated"
    # Of characters that every server takes.
    made.set_content(message.text.encode("utf-8", "replace").decode(), charset="utf-8", cte="quoted-printable")
    return made


def hand_over(attempt: Attempt, server: Server, made: EmailMessage, *, sender: str, to: tuple[str, ...]) -> Answer:
    try:
        with _connected(server) as smtp:
            if refused := _prepared(smtp, server):
                return Answer(Delivery.REFUSED, refused)
            return _sent(attempt, smtp, made, sender=sender, to=to)
    except smtplib.SMTPResponseException as error:
        return Answer(Delivery.REFUSED, _said(error.smtp_code, error.smtp_error), again=error.smtp_code < 500)
    except ssl.SSLError as error:
        return _broken(attempt, f"no TLS with it ({error.reason or error})", again=False)
    except (smtplib.SMTPException, OSError) as error:
        return _broken(attempt, f"it cannot be reached ({error})", again=True)


def _broken(attempt: Attempt, text: str, *, again: bool) -> Answer:
    if attempt.begun:
        return Answer(Delivery.UNSURE, "the connection broke before an answer came")
    return Answer(Delivery.REFUSED, line(text, 200), again=again)


class _Connection(smtplib.SMTP):
    """Ends politely, unless the connection is broken: what the server said counts, not how it hangs up."""

    def __exit__(self, *args: object) -> None:
        with suppress(smtplib.SMTPException, OSError):
            self.quit()
        self.close()


class _TlsConnection(smtplib.SMTP_SSL):
    __exit__ = _Connection.__exit__


def _connected(server: Server) -> smtplib.SMTP:
    # A full name would be looked up, which can take long.
    name = socket.gethostname()
    if server.port == _TLS_PORT:
        context = ssl.create_default_context()
        return _TlsConnection(server.host, server.port, name, timeout=STEP_S, context=context)
    return _Connection(server.host, server.port, name, timeout=STEP_S)


def _prepared(smtp: smtplib.SMTP, server: Server) -> str:
    """Encrypted and signed in, as far as the server wants it; else why not."""
    smtp.ehlo_or_helo_if_needed()
    encrypted = isinstance(smtp, smtplib.SMTP_SSL)
    if not encrypted and smtp.has_extn("starttls"):
        smtp.starttls(context=ssl.create_default_context())
        smtp.ehlo()
        encrypted = True
    if not server.user:
        return ""
    if not encrypted and server.host not in _LOOPBACK:
        return "it offers no TLS, and a password is not sent without; use its TLS port, or no user"
    try:
        smtp.login(server.user, server.password)
    except smtplib.SMTPNotSupportedError:
        return "it takes no password; leave out user and password"
    return ""


def _sent(attempt: Attempt, smtp: smtplib.SMTP, made: EmailMessage, *, sender: str, to: tuple[str, ...]) -> Answer:
    code, said = smtp.mail(sender)
    if code >= 400:
        return Answer(Delivery.REFUSED, _said(code, said), again=code < 500)
    refused = []
    for address in to:
        code, said = smtp.rcpt(address)
        if code >= 400:
            refused.append((address, code, said))
    told = "; ".join(f"{address}: {_said(code, said)}" for address, code, said in refused)
    if len(refused) == len(to):
        return Answer(Delivery.REFUSED, told, again=all(code < 500 for _, code, _ in refused))
    content = made.as_bytes()
    attempt.begin()
    code, said = smtp.data(content)
    if code >= 400:
        return Answer(Delivery.REFUSED, _said(code, said), again=code < 500)
    return Answer(Delivery.DELIVERED, told)


def _said(code: int, text: bytes | str) -> str:
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return f"it answers {code}: {line(shown, 200)}"
