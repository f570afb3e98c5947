"""Our own files in a folder that others may write, such as Ray's session logs: 0777, and without the sticky bit.

There, anyone may have put anything at the name of a file of ours: a link, a second name of another file, a pipe, a
folder, a file of their own. Only a regular file of this user with one name is used. Anything else is moved aside, and
never written to; a device, which only root can put there, stays where it is. The supervisor has a copy of this source,
so there are no slow imports.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

TRIES = 3
"""How often what is at our name is moved aside: someone may put something there again."""
SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""O_NONBLOCK: opening a pipe does not wait for its other end. It has no effect on regular files."""


def open_own(path: str, flags: int, mode: int = 0o640, aside: Optional[List[str]] = None) -> int:
    """Open our own file, or with O_CREAT a new one, and return its descriptor; raises OSError, EPERM if it is not ours.

    With O_CREAT, something else at this name is moved aside to a name that nobody can guess; `aside` gets that name.
    """
    creates = flags & os.O_CREAT
    for _ in range(TRIES):
        try:
            return _opened(path, flags & ~os.O_CREAT)
        except FileNotFoundError:
            if not creates:
                raise
        except OSError:
            if not creates or _is_own(path):
                raise
            moved = _move_aside(path)
            if moved and aside is not None:
                aside.append(moved)
        try:
            return os.open(path, flags | os.O_EXCL | SAFELY, mode)
        except FileExistsError:
            continue
    raise PermissionError(errno.EPERM, "others keep putting files there", path)


def replace_own(path: str, content: bytes, mode: int = 0o640, *, sync: bool = False) -> None:
    """Write a file of ours whole, or leave what is there; raises OSError. A folder at its name is moved aside.

    `sync` = return once it is on the disk.
    """
    new = _beside(path)
    written = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, mode)
    try:
        with open(written, "wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if os.path.isdir(path) and not os.path.islink(path):
            _move_aside(path)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def _opened(path: str, flags: int) -> int:
    found = os.open(path, flags & ~os.O_TRUNC | SAFELY)
    try:
        status = os.fstat(found)
        if not _is_ours(status):
            raise PermissionError(errno.EPERM, "not a file of this user with one name", path)
        if flags & os.O_TRUNC:
            os.ftruncate(found, 0)
    except BaseException:
        os.close(found)
        raise
    return found


def _is_own(path: str) -> bool:
    try:
        return _is_ours(os.lstat(path))
    except OSError:
        return False


def _is_ours(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1


def _move_aside(path: str) -> str:
    moved = _beside(path)
    try:
        kind = os.lstat(path).st_mode
        if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
            raise PermissionError(errno.EPERM, "a device", path)
        os.rename(path, moved)
    except FileNotFoundError:  # it has gone by itself
        return ""
    return moved


def _beside(path: str) -> str:
    return "%s.%s" % (path, os.urandom(8).hex())
