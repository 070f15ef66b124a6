"""One attempt at a real server on loopback, and what it says of it."""

from __future__ import annotations

import datetime as dt
import json
import logging
import ssl
import threading
import time
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from perfci import notify
from perfci.config import Channel
from perfci.errors import SettingsError
from perfci.notify import email, sending
from perfci.notify.attempt import Answer, Attempt, Delivery, within
from tests.build import EPOCH
from tests.notify import receivers
from tests.notify.receivers import Mail, Web


def by_mail(server: Mail, **more: str) -> Channel:
    to = ("a@example.org", "b@example.org")
    return Channel("team", "email", to=to, sender="perfci@example.org", smtp=f"127.0.0.1:{server.port}", **more)


def tried(channel: Channel) -> Answer:
    return notify.test(channel, now=EPOCH)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(sending, "LIMIT_S", 0.4)
    return 0.4


def test_each_kind_says_that_it_works(web: Web, mail: Mail) -> None:
    for kind in ("slack", "webhook"):
        assert tried(Channel("chat", kind, url=web.url)) == Answer(Delivery.DELIVERED)
    assert tried(by_mail(mail)) == Answer(Delivery.DELIVERED)
    for received in web.received:
        assert "perfci: the channel chat works" in received.body.decode()
    letter = mail.letter()
    assert letter["Subject"] == "perfci: the channel team works"
    assert "this is a test" in letter.get_content()
    assert [verb for verb in mail.verbs if verb.startswith(("MAIL", "RCPT"))] == [
        *("MAIL FROM:<perfci@example.org>", "RCPT TO:<a@example.org>", "RCPT TO:<b@example.org>")
    ]


def test_a_secret_may_come_from_the_environment_and_is_in_no_log(
    web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("HOOK", f"{web.url}\n")
    monkeypatch.setenv("KEY", "k3y")
    assert tried(Channel("chat", "webhook", url="env:HOOK", key="env:KEY")).delivery is Delivery.DELIVERED
    [received] = web.received
    assert received.path == "/hook/s3cret-path"
    assert "v1=" in received.headers["Perfci-Signature"]
    assert "s3cret-path" not in caplog.text


@pytest.mark.parametrize(
    "value", ["", "ftp://example.org/s3cret", "not a url s3cret", "https://u:s3cret@example.org/", "https://[s3cret"]
)
def test_a_url_that_cannot_be_used_is_refused_without_being_shown(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", value)
    with pytest.raises(SettingsError, match=r"^notify\.chat\.url ") as caught:
        tried(Channel("chat", "slack", url="env:HOOK"))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"smtp": "mail.example.org:port"}, "notify.team.smtp = 'mail.example.org:port'; write host:port"),
        ({"smtp": "u:p@mail:25"}, "notify.team.smtp"),
        ({"sender": "Team <a@b>"}, "notify.team has the address 'Team <a@b>'"),
        ({"password": "env:PERFCI_TEST_UNSET"}, "notify.team.password names the variable PERFCI_TEST_UNSET"),
    ],
)
def test_a_channel_that_cannot_work_says_which_setting_is_wrong(changes: dict[str, str], told: str) -> None:
    settings = {"to": ("a@example.org",), "sender": "p@example.org", "smtp": "127.0.0.1:25", **changes}
    with pytest.raises(SettingsError) as caught:
        tried(Channel("team", "email", **settings))  # type: ignore[arg-type]
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("answers", "delivery", "again", "told"),
    [
        ({"MAIL": "550 who are you"}, Delivery.REFUSED, False, "it answers 550: who are you"),
        ({"RCPT": "451 come back later"}, Delivery.REFUSED, True, "a@example.org: it answers 451: come back later"),
        ({"DATA": "554 no"}, Delivery.REFUSED, False, "it answers 554: no"),
        ({"END": "452 the disk is full"}, Delivery.REFUSED, True, "it answers 452: the disk is full"),
        ({"EHLO": "500 what?", "HELO": "500 what?"}, Delivery.REFUSED, False, "it answers 500: what?"),
    ],
)
def test_what_a_mail_server_refuses_was_not_sent(
    answers: dict[str, str], delivery: Delivery, again: bool, told: str
) -> None:
    with receivers.mail(answers=answers) as server:
        answer = tried(by_mail(server))
        assert (answer.delivery, answer.again) == (delivery, again)
        assert answer.text.startswith(told)


def test_a_connection_that_breaks_before_the_letter_is_tried_again_and_after_it_is_unsure() -> None:
    for verb, delivery in (("RCPT", Delivery.REFUSED), ("END", Delivery.UNSURE)):
        with receivers.mail(hang_up_at=verb) as server:
            answer = tried(by_mail(server))
            assert (answer.delivery, answer.again) == (delivery, delivery is Delivery.REFUSED)


def test_a_server_that_says_nothing_is_given_up_and_nothing_was_sent(short: float) -> None:
    with receivers.mail(silent=True) as server:
        began = time.monotonic()
        assert tried(by_mail(server)) == Answer(Delivery.REFUSED, f"no answer within {short} s", again=True)
        assert time.monotonic() - began < 30  # its own limit is ten seconds a step


def test_a_server_that_is_not_there_is_tried_again() -> None:
    with receivers.mail() as server:
        pass
    answer = tried(by_mail(server))
    assert (answer.delivery, answer.again) == (Delivery.REFUSED, True)
    assert "it cannot be reached" in answer.text


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of 127.0.0.1, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "server.pem"
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(made.public_bytes(pem) + key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    return path


@pytest.fixture
def context(certificate: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate)
    return made


@pytest.fixture
def secured(context: ssl.SSLContext) -> Iterator[Mail]:
    with receivers.mail(tls=context) as running:
        yield running


def test_one_port_is_encrypted_from_the_start(
    context: ssl.SSLContext, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receivers.mail(tls=context, tls_first=True) as server:
        monkeypatch.setattr(email, "_TLS_PORT", server.port)
        answer = tried(by_mail(server, user="perfci", password="pa55word"))
        assert (answer.delivery, server.letters) == (Delivery.REFUSED, [])
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert tried(by_mail(server, user="perfci", password="pa55word")) == Answer(Delivery.DELIVERED)
        assert len(server.letters) == 1


def test_tls_is_used_where_it_is_offered(secured: Mail, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert tried(by_mail(secured, user="perfci", password="pa55word")) == Answer(Delivery.DELIVERED)
    assert secured.encrypted
    assert secured.letter()["To"] == "a@example.org, b@example.org"


def test_a_certificate_that_nobody_vouches_for_gets_no_letter(secured: Mail) -> None:
    answer = tried(by_mail(secured, user="perfci", password="pa55word"))
    assert (answer.delivery, answer.again, secured.letters) == (Delivery.REFUSED, False, [])
    assert answer.text == "no TLS with it (CERTIFICATE_VERIFY_FAILED)"
    assert not any("AUTH" in verb for verb in secured.verbs)


def test_a_password_is_refused_or_taken_by_the_server(mail: Mail) -> None:
    assert tried(by_mail(mail, user="perfci", password="pa55word")).delivery is Delivery.DELIVERED
    mail.answers["AUTH"] = "535 wrong"
    answer = tried(by_mail(mail, user="perfci", password="pa55word"))
    assert (answer.delivery, answer.again, answer.text) == (Delivery.REFUSED, False, "it answers 535: wrong")


def test_one_address_that_is_refused_does_not_keep_the_letter_from_the_other() -> None:
    class Picky(Mail):
        def _usual(self, verb: str) -> str:
            first = verb == "RCPT" and len([v for v in self.verbs if v.startswith("RCPT")]) == 1
            return "550 nobody here" if first else super()._usual(verb)

    with receivers.mail(Picky) as server:
        answer = tried(by_mail(server))
        assert answer == Answer(Delivery.DELIVERED, "a@example.org: it answers 550: nobody here")
        assert len(server.letters) == 1


def test_a_slack_body_arrives_as_json(web: Web) -> None:
    tried(Channel("chat", "slack", url=web.url))
    [received] = web.received
    assert received.headers["Content-Type"].startswith("application/json")
    assert json.loads(received.body)["blocks"][0]["type"] == "header"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(web: Web, status: int) -> None:
    with receivers.web() as other:
        web.status, web.headers = status, {"Location": other.url}
        answer = tried(Channel("chat", "webhook", url=web.url))
        assert (answer.delivery, other.received) == (Delivery.REFUSED, [])
        assert "redirect" in answer.text


def test_a_gateway_that_gave_up_waiting_is_unsure(web: Web) -> None:
    web.status = 504
    assert tried(Channel("chat", "webhook", url=web.url)).delivery is Delivery.UNSURE


def test_an_attempt_that_was_given_up_does_not_begin_later() -> None:
    go, outcome = threading.Event(), []

    def work(attempt: Attempt) -> Answer:
        go.wait(10)
        try:
            attempt.begin()
        finally:
            outcome.append(attempt.begun)
        return Answer(Delivery.DELIVERED)

    assert within(0.05, work).delivery is Delivery.REFUSED
    go.set()
    while not outcome:
        time.sleep(0.01)
    assert outcome == [False]
