"""Errors a caller may want to catch by name. Bad values are plain ``ValueError`` and ``TypeError``."""

from __future__ import annotations


class UsuError(Exception):
    """Any error that is ours and not about one bad argument."""


class MissingExtra(UsuError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed. "
            f"Install it with: pip install 'usu-xai[{extra}]'"
        )
