"""The terminal that a command works on, and whether somebody has closed it."""

from __future__ import annotations

import os
import select
import signal


class Terminal:
    """Of the command that runs in its foreground; for one in the background or under nohup there is none.

    The kernel tells a terminal's end to the first process of its session alone. Where that is `make`, it tells nobody.
    """

    def __init__(self) -> None:
        wanted = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        self._descriptor = next((fd for fd in (0, 1, 2) if wanted and _in_foreground(fd)), None)

    @property
    def gone(self) -> bool:
        if self._descriptor is None:
            return False
        poll = select.poll()
        poll.register(self._descriptor, 0)
        return bool(poll.poll(0))  # what is not asked for is an end or an error


def _in_foreground(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False  # no terminal, or not this session's
