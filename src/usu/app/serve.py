"""From a model to a page in a browser: as a program that runs until it is told to end, or beside a notebook."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from usu.app.guard import LOOPBACK, Door, is_loopback
from usu.app.looking import Glass
from usu.app.visitors import Limits
from usu.errors import MissingExtraError, UsuError
from usu.forward.engine import RuntimeName
from usu.inputs import model_of
from usu.models import Loaded
from usu.types import NDArray

#: Seconds that open connections get when the server ends.
_GRACE = 3


def glass_of(loaded: Loaded, *, source: str | NDArray = "gradcam", engine: RuntimeName = "auto") -> Glass:
    """A model ready for visitors: in its fastest form, tried once on a grey picture."""
    from torch import nn

    from usu.forward.runtime import runtime

    model = model_of(loaded)
    if isinstance(source, str) and not isinstance(model, nn.Module):
        raise ValueError(
            f"`source` must be a coarse map of your own for a model without gradients; got {source!r}. "
            "Pass --source map.npy."
        )
    ramp = np.tile(np.linspace(0, 255, 64, dtype=np.uint8)[:, None], (64, 1, 3))
    runs = runtime(model, loaded.prepare(ramp)[0], engine)
    return Glass(loaded, runs.model, runs.name, runs.note, source)


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


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise UsuError(f"The page cannot listen on {host}, port {port} ({error.strerror}). Try --port 0.") from None
    sock.listen(128)
    return sock


def address(host: str, port: int, door: Door) -> str:
    """What to open."""
    shown = door.hosts[0] if not is_loopback(host) else "localhost" if ":" in host else host
    return f"http://{shown}:{port}/" + (f"?token={door.token}" if door.token else "")


def serve(
    glass: Glass,
    *,
    host: str = "127.0.0.1",
    port: int = 7860,
    limits: Limits | None = None,
    allow_hosts: Sequence[str] = (),
    frames: Sequence[str] = (),
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the page until SIGTERM or Ctrl-C; ``ready`` is told its address. Both end it cleanly."""
    door = door_of(host, allow_hosts, frames)
    sock = listening(host, port)
    server, closing, port = _server(glass, limits, door, sock)
    kept = {number: signal.signal(number, _nothing) for number in (signal.SIGTERM, signal.SIGINT)}
    own = server.handle_exit

    def handle(number: int, frame: FrameType | None) -> None:
        closing()
        own(number, frame)

    server.handle_exit = handle
    threading.Thread(target=_when_started, args=(server, lambda: ready(address(host, port, door))), daemon=True).start()
    try:
        server.run(sockets=[sock])
    finally:
        for number, before in kept.items():
            signal.signal(number, before)
        sock.close()


def _nothing(number: int, frame: FrameType | None) -> None:
    """Afterwards uvicorn raises the signal that ended it once more, which would look like a crash."""


@dataclass(frozen=True)
class Page:
    """A page that is being served by a thread of this process until ``close()``; a notebook shows it."""

    url: str
    close: Callable[[], None]

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{self.url}" title="usu" width="100%" height="820" style="border:0" allow="clipboard-write">'
            f'</iframe><p><a href="{self.url}" target="_blank">{self.url}</a></p>'
        )


def show(
    loaded: Loaded,
    *,
    source: str | NDArray = "gradcam",
    port: int = 0,
    limits: Limits | None = None,
    frames: Sequence[str] = ("http://localhost:*", "http://127.0.0.1:*"),
) -> Page:
    """The page in a notebook: served on loopback by a thread, until ``.close()`` or the end of the process.

    ``frames`` are the notebook's own addresses, the only ones that may frame it.
    """
    sock = listening("127.0.0.1", port)
    server, closing, port = _server(glass_of(loaded, source=source), limits, door_of("127.0.0.1", (), frames), sock)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    _when_started(server, lambda: None)

    def close() -> None:
        closing()
        server.should_exit = True
        thread.join(_GRACE + 2)
        sock.close()

    # "localhost", because that is what notebooks are called by: cookies go to the same name only
    return Page(f"http://localhost:{port}/", close)


def _server(
    glass: Glass, limits: Limits | None, door: Door, sock: socket.socket
) -> tuple[Any, Callable[[], None], int]:
    """A server for the page, what to call when it ends, and its port."""
    try:
        import uvicorn

        from usu.app.server import create
    except ImportError:
        raise MissingExtraError("uvicorn", "app", "The page") from None
    port = sock.getsockname()[1]
    app = create(glass, limits=limits, door=door, port=port)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=30, h11_max_incomplete_event_size=32_768, limit_concurrency=512, ws="none", lifespan="off",
    )  # fmt: skip
    return uvicorn.Server(config), app.state.desk.close, port


def _when_started(server: Any, then: Callable[[], None]) -> None:
    end = time.monotonic() + 30
    while not server.started and time.monotonic() < end:
        time.sleep(0.02)
    then()
