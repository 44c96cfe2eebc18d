"""Settings for tests: a preset with a few things changed."""

from __future__ import annotations

from dataclasses import replace

from usu.settings import Settings, settings_of


def chosen(preset: str | None = None, **changes: object) -> Settings:
    """The preset of that name (None: the default of `usu.upsample`) with other values of some settings."""
    return replace(settings_of(preset), **changes)  # type: ignore[arg-type]
