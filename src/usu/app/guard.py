"""Who may come in: names the page may be called by, pages that may ask, a key beyond this machine. And what browsers
are told to allow: nothing from elsewhere."""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Door:
    """The rules of who may come in."""

    #: Names the page may be called by.
    hosts: tuple[str, ...] = LOOPBACK
    #: The key that is wanted; None on loopback.
    token: str | None = None
    #: Origins of pages that may frame this one, and whether browsers reach it by https.
    frames: tuple[str, ...] = ()
    secure: bool = False

    def knows(self, host: str) -> bool:
        """Is this a name (with or without a port) that the page may be called by?

        >>> [Door().knows(host) for host in ("LOCALHOST:7860", "[::1]:7860", "evil.example", "a:b:c")]
        [True, True, False, False]
        """
        found = re.fullmatch(r"(\[[\da-f:.]+\]|[\w.-]+)(:\d+)?", host.lower())
        return found is not None and found[1].strip("[]") in self.hosts

    def opens(self, given: str | None) -> bool:
        """Is this the key?"""
        return self.token is None or (given is not None and hmac.compare_digest(given.encode(), self.token.encode()))

    @property
    def headers(self) -> dict[str, str]:
        """What every answer says."""
        frames = " ".join(self.frames) or "'none'"
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
            f"base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
        )
        own = {
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
            "Cache-Control": "no-store",
        }
        return own if self.frames else {**own, "X-Frame-Options": "DENY"}

    @property
    def cookie(self) -> dict[str, Any]:
        """How cookies are kept: not for scripts, not for other sites; where another site frames the page over https,
        for that frame alone."""
        if self.secure and self.frames:
            return {"httponly": True, "samesite": "none", "secure": True, "partitioned": True}
        return {"httponly": True, "samesite": "strict", "secure": self.secure}


def is_loopback(host: str) -> bool:
    """Does this address reach no further than this machine?

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def door_of(host: str, allow_hosts: Sequence[str], frames: Sequence[str]) -> Door:
    """The rules for this address: a key and names are wanted as soon as others can reach it."""
    secure = any(origin.startswith("https://") for origin in frames)
    if is_loopback(host) and not allow_hosts:
        return Door(frames=tuple(frames), secure=secure)
    if not allow_hosts:
        raise ValueError(
            f"`--allow-host` must name what the page may be called by beyond this machine; got none for {host}. "
            "For example --allow-host demo.example.org."
        )
    names = tuple(name.lower().strip("[]") for name in allow_hosts)
    token = os.environ.get("USU_TOKEN") or secrets.token_urlsafe(18)
    return Door((*names, *LOOPBACK), token, tuple(frames), secure)


def address(host: str, port: int, door: Door) -> str:
    """What to open."""
    shown = door.hosts[0] if not is_loopback(host) else "localhost" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={door.token}" if door.token else "")


class Guard:
    """The door as ASGI middleware: refuses before anything else sees the request, and adds the headers.

    ``refuse`` makes the answer for a key of `texts.json` and a status; ``key`` names the cookie that holds the token.
    """

    def __init__(self, app: ASGIApp, door: Door, refuse: Callable[[str, int], ASGIApp], key: str) -> None:
        self._app, self._door, self._refuse, self._key = app, door, refuse, key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette.datastructures import MutableHeaders

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = MutableHeaders(scope=message)
                for name, value in self._door.headers.items():
                    said.setdefault(name, value)
            await send(message)

        trouble = self._trouble(scope)
        app = self._app if trouble is None else self._refuse(*trouble)
        await app(scope, receive, answer)

    def _trouble(self, scope: Scope) -> tuple[str, int] | None:
        from starlette.requests import HTTPConnection

        request = HTTPConnection(scope)
        got, host = request.headers, request.headers.get("host", "").lower()
        if not self._door.knows(host) or len(got.getlist("host")) != 1:
            return "wrong_host", 421
        origin, site = got.get("origin"), got.get("sec-fetch-site", "same-origin")
        visit = scope["method"] == "GET" and scope["path"] == "/"
        own = origin is None or origin.lower() in (f"http://{host}", f"https://{host}")
        if not own or (site not in ("same-origin", "none") and not visit):
            return "wrong_origin", 403
        if scope["path"] == "/health" or self._door.opens(request.cookies.get(self._key)):
            return None
        given = request.query_params.get("token")
        if visit and given is not None:
            return None if self._door.opens(given) else ("wrong_token", 403)
        return "no_token", 401
