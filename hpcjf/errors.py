"""The error family. Every message says what failed, where (file, line or key) and how to mend it."""

from __future__ import annotations


class HpcjfError(Exception):
    """Root of all errors that the project raises on purpose.

    ``what`` is the fault, ``where`` the file, line, key or job, ``fix`` the way out. ``str()`` is one line.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        parts = [f"{where}: {what}" if where else what]
        if fix:
            parts.append(fix)
        super().__init__(" ".join("; ".join(parts).split()))


class UserError(HpcjfError):
    """The user's input, files or permissions are at fault: exit code 2, nothing was changed."""

    exit_code = 2


class StudyError(UserError):
    """A study file that cannot be used."""


class TaskError(UserError):
    """Data or a task that cannot be used."""


class ModelError(UserError):
    """A model folder, tokenizer or adapter that cannot be used."""


class StoreError(HpcjfError):
    """A file of the run directory is missing, damaged or not to be trusted."""


class UntrustedPathError(StoreError, UserError):
    """A path that another user owns or could have written."""


class DiskFullError(StoreError, UserError):
    """ENOSPC or EDQUOT: what was there before is still there."""


class NotPermittedError(StoreError, UserError):
    """The file system lets this user not read or write what is needed."""


class LockTimeoutError(StoreError):
    """A lock was not free in time; the message names its holder."""


class FencedError(StoreError):
    """A newer controller generation or attempt owns this entry: the caller must end without writing."""


class ClusterError(HpcjfError):
    """The scheduler refused or could not be reached."""


class TransientClusterError(ClusterError):
    """Worth trying again later: time-outs, an unreachable controller."""


class LimitClusterError(ClusterError):
    """A limit of the site; the job stays queued on our side and is submitted later."""


class PermanentClusterError(ClusterError, UserError):
    """Will never work as asked: bad partition, account, resources. Carries the site's own text."""


class TrainingError(HpcjfError):
    """A training run that must not go on (nothing trainable, KL not 0 at step 0, state not restorable)."""
