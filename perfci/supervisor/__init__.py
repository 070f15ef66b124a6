"""Child processes as one tree that cannot be orphaned.

    this process ── supervisor ── program ── whatever it starts
        Tree          main()      (own process group)

`Tree` belongs to a command; it starts one supervisor, which starts the programs. The two are joined by a
pipe: when the command is gone, SIGKILL included, the pipe ends and the supervisor kills everything below
it. The supervisor is a Linux child subreaper, so that a grandchild which daemonises stays below it. When
the supervisor itself is killed, its programs die with it (PR_SET_PDEATHSIG), and what they had started
carries a mark in its environment by which `sweep` finds it when the next command starts.

On other systems than Linux the mark alone finds what left the tree.
"""

from __future__ import annotations

from perfci.supervisor.marks import MARK, log_end, marked, sweep
from perfci.supervisor.tree import Ended, Program, Tree

__all__ = ["MARK", "Ended", "Program", "Tree", "log_end", "marked", "sweep"]
