"""A message as JSON for any program, signed so that it can tell who sent it and when.

Perfci-Signature: t=1796090400,v1=<HMAC-SHA256 of "1796090400." and the body, in hexadecimal>
Perfci-Delivery: the same for the same message, should it ever arrive twice
"""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import datetime

from perfci.artifact import plain
from perfci.notify.message import Message

VERSION = 1
ALERTS = 1000  # told by value; the rest is counted


def body(message: Message, *, delivery: str) -> bytes:
    told = {
        "version": VERSION,
        "delivery": delivery,
        "session": message.session,
        "title": message.title,
        "text": message.text,
        "alerts": [plain(alert) for alert in message.alerts[:ALERTS]],
        "alerts_left": max(0, len(message.alerts) - ALERTS),
        "troubles": [plain(trouble) for trouble in message.troubles],
        "problems": list(message.problems),
    }
    return json.dumps(told, allow_nan=False).encode()


def headers(content: bytes, *, delivery: str, key: str, at: datetime) -> dict[str, str]:
    """key: empty for no signature."""
    told = {"Content-Type": "application/json", "Perfci-Delivery": delivery, "User-Agent": "perfci"}
    if key:
        told["Perfci-Signature"] = signature(content, key=key, at=at)
    return told


def signature(content: bytes, *, key: str, at: datetime) -> str:
    moment = str(int(at.timestamp()))
    mac = hmac.new(key.encode(), f"{moment}.".encode() + content, hashlib.sha256)
    return f"t={moment},v1={mac.hexdigest()}"
