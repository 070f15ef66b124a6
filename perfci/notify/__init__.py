"""Telling people what a night found: Slack, e-mail, or any webhook; each thing once a channel.

send    what is new, to every channel; called at the end of a night, and by `perfci notify send`
test    a message that says that a channel works
"""

from perfci.notify.sending import send, test

__all__ = ["send", "test"]
