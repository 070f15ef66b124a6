"""A message for a Slack incoming webhook.

Everything is plain text there, in which Slack formats nothing; `&`, `<` and `>` are escaped on top of it, since a
`<!channel>` would call everybody.
"""

from __future__ import annotations

import json
from typing import Any

from perfci.notify.message import Message, heading

HEADERS = {"Content-Type": "application/json; charset=utf-8"}
# Limits of Slack: characters of a header and of a section.
_HEADER = 150
_SECTION = 3000
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def body(message: Message) -> bytes:
    title = _fitting(message.title, _HEADER)
    sections = ["\n".join((heading(g), *g.lines, *([f"and {g.left} more"] if g.left else ()))) for g in message.groups]
    if message.left:
        sections.append(f"and {message.left} more commits")
    if message.trouble_lines:
        sections.append("\n".join(("What this night lacks:", *message.trouble_lines)))
    sections.append(message.closing)
    told: dict[str, Any] = {
        "text": title,  # what a notification shows
        "mrkdwn": False,
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
        "blocks": [
            {"type": "header", "text": _plain(title)},
            *({"type": "section", "text": _plain(_fitting(section, _SECTION))} for section in sections),
        ],
    }
    return json.dumps(told).encode()


def _plain(escaped: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": escaped, "emoji": False}


def _fitting(text: str, limit: int) -> str:
    """Escaped, and then cut where no escape is cut."""
    whole = text.translate(_ESCAPES)
    if len(whole) <= limit:
        return whole
    kept, used = [], 1
    for character in text:
        used += len(character.translate(_ESCAPES))
        if used > limit:
            break
        kept.append(character)
    return "".join(kept).translate(_ESCAPES) + "…"
