"""The page: drop a picture, see why. ``usu app`` serves it, `show` puts it into a notebook (extra ``app``)."""

from usu.app.serve import Page, glass_of, serve, show
from usu.app.visitors import Limits

__all__ = ["Limits", "Page", "glass_of", "serve", "show"]
