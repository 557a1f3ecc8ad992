"""Who could have written a path: nobody but its owner and root may, or what it holds is not to be trusted."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from pathlib import Path

from hpcjf.errors import UntrustedPathError


def check_path(path: Path, uid: int) -> None:
    """Check ``path`` and all its parents, on both sides of symbolic links. What does not exist yet passes.

    A folder that others may write is safe where its sticky bit keeps them from renaming our entry (/tmp).

    :raises UntrustedPathError: another user owns or can write one of them.
    """
    absolute = Path(os.path.abspath(path))
    resolved = Path(os.path.realpath(absolute))
    for each in sorted({absolute, *absolute.parents, resolved, *resolved.parents}):
        try:
            found = each.lstat()
        except FileNotFoundError:
            continue
        sticky = bool(found.st_mode & stat.S_ISVTX) and each not in (absolute, resolved)
        check_stat(each, found, uid, sticky_allowed=sticky)


def check_stat(path: Path, found: os.stat_result, uid: int, *, sticky_allowed: bool = False) -> None:
    """:raises UntrustedPathError: a user other than ``uid`` and root owns or can write what was found."""
    if found.st_uid not in (uid, 0):
        raise UntrustedPathError(
            f"belongs to {_user_name(found.st_uid)}, not to {_user_name(uid)}",
            where=str(path),
            fix="use a folder of your own",
        )
    if _others_can_write(found) and not sticky_allowed and not stat.S_ISLNK(found.st_mode):
        raise UntrustedPathError(
            "other users can write it", where=str(path), fix=f"run `chmod go-w {path}` or use another folder"
        )


def _others_can_write(found: os.stat_result) -> bool:
    """Whether the mode bits let anybody but the owner write. A user's private group does not count."""
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _private_group(found.st_gid, found.st_uid)


def _private_group(gid: int, uid: int) -> bool:
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def open_regular(path: Path, flags: int, *, owned_by: int | None, mode: int = 0o600) -> int:
    """Open a regular file without following a symbolic link, and without waiting on a FIFO. Returns the descriptor.

    ``owned_by`` is the user id that the file must belong to (root's are accepted too), None for anybody.

    :raises UntrustedPathError: a link, not a regular file, or another user owns or can write it.
    :raises OSError: as ``os.open`` does.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise untrusted_kind(path) from error
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise untrusted_kind(path)
        if owned_by is not None:
            check_stat(path, found, owned_by)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def untrusted_kind(path: Path) -> UntrustedPathError:
    return UntrustedPathError(
        "not a regular file (a symbolic link, perhaps)", where=str(path), fix="see who put it there, then remove it"
    )
