"""Errors and warnings a caller may want to catch by name. Bad values are plain ``ValueError`` and ``TypeError``."""

from __future__ import annotations


class UsuError(Exception):
    """Any error that is ours and not about one bad argument."""


class UsuWarning(UserWarning):
    """Anything of ours that a person should know before believing a result."""


class MissingExtraError(UsuError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed. "
            f"Install it with: pip install 'usu-xai[{extra}]'"
        )


class UnreadablePictureError(UsuError):
    """A file that was given as a picture cannot be read as one; ``path`` and ``reason`` say which and why."""

    def __init__(self, path: object, reason: str, advice: str) -> None:
        super().__init__(f"The picture {path} cannot be read: {reason}. {advice}")
        self.path = path
        self.reason = reason


class ModelLoadError(UsuError):
    """A model asked for by name, file or folder cannot be made."""


def first_line(error: BaseException) -> str:
    """What a library says of its failure, without its history."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
