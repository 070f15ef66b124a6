"""Folders that worker and subject both write in, and what the worker takes back from them.

The worker makes them, in a folder that is its own alone: the subject may fill and empty them, and cannot put another
one in their place. While no command of the subject runs, the worker copies out of them, never through a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

from perfci.bench import process
from perfci.bench.subject import Subject

_SET_ID = stat.S_ISUID | stat.S_ISGID


def share(folder: Path, subject: Subject | None, *, deep: bool = True) -> None:
    """Let the subject change everything in `folder`, which is made if it is not there. It has not run there yet; where
    it has, `deep=False`: what it made is its own already."""
    folder.mkdir(parents=True, exist_ok=True)
    if subject is None:
        return
    for name, _, files in os.walk(folder) if deep else [(str(folder), [], [])]:
        os.chown(name, -1, subject.gid)
        # What either makes in it belongs to the group of both.
        Path(name).chmod(stat.S_IMODE(Path(name).stat().st_mode) | stat.S_IRWXG | stat.S_ISGID)
        for entry in files:
            path = Path(name, entry)
            mode = path.lstat().st_mode
            os.chown(path, -1, subject.gid, follow_symlinks=False)
            if stat.S_ISREG(mode):
                path.chmod(stat.S_IMODE(mode) | stat.S_IRGRP | stat.S_IWGRP | (stat.S_IXGRP if mode & 0o100 else 0))


def reopen(folder: Path, subject: Subject | None) -> None:
    """Let the worker read and remove what the subject left in `folder`, whatever rights it gave to it."""
    if subject is None or not folder.is_dir():
        return
    process.run(
        ("chmod", "-R", "-f", "u+rwX,g+rwX", str(folder)),
        folder=Path("/"),
        environment=process.scrubbed(os.environ),
        timeout_s=300,
        log=Path(os.devnull),
        subject=subject,
    )


def copy_over(source: Path, target: Path) -> None:
    """Copy files and links with their times, replacing what is there; git's own, pipes and sockets stay behind.

    No link is followed on either side, and no copy runs as its owner: what a hostile build made stays harmless.
    """
    for name, folders, files in os.walk(source):
        folder, to = Path(name), target / Path(name).relative_to(source)
        _make_folder(to)
        for entry in (*files, *(f for f in folders if (folder / f).is_symlink())):
            path = folder / entry
            if entry == ".git" or not (path.is_symlink() or path.is_file()):
                continue
            if (to / entry).is_symlink() or (to / entry).is_file():
                (to / entry).unlink()
            elif (to / entry).is_dir():
                shutil.rmtree(to / entry)
            shutil.copy2(path, to / entry, follow_symlinks=False)
            if not path.is_symlink() and (to / entry).stat().st_mode & _SET_ID:
                (to / entry).chmod(stat.S_IMODE((to / entry).stat().st_mode) & ~_SET_ID)


def _make_folder(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)


def take(path: Path, target: Path, *, subject: Subject | None, limit: int) -> bool:
    """Copy one file that the command left at `path` to `target`; False for none, and for what is no plain file of the
    command's own, e.g. a link to a file that it cannot read itself. Of a longer file, `limit` and one bytes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.ENOTDIR):
            return False
        raise
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or (subject is not None and about.st_uid != subject.uid):
            return False
        with target.open("wb") as out:
            left = limit + 1
            while left > 0 and (data := os.read(descriptor, min(left, 1 << 20))):
                out.write(data)
                left -= len(data)
    with contextlib.suppress(OSError):
        os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))
    return True
