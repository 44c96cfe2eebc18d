"""From a model to a page in a browser: as a program that runs until it is told to end, or beside a notebook."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from usu.app import samples
from usu.app.guard import Door, is_loopback
from usu.app.limits import Limits
from usu.app.looking import Glass
from usu.errors import MissingExtraError, UsuError
from usu.forward.engine import RuntimeName
from usu.inputs import model_of
from usu.models import Loaded
from usu.types import NDArray

if TYPE_CHECKING:
    from starlette.applications import Starlette

_LOCAL = ("localhost", "127.0.0.1", "::1")
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
    image, _ = loaded.prepare(samples.grey())
    runs = runtime(model, image, engine)
    return Glass(loaded, runs.model, runs.name, runs.note, source)


def door_of(host: str, allow_hosts: Sequence[str], frames: Sequence[str], token: str | None) -> Door:
    """The rules for this address: a key and names are wanted as soon as others can reach it."""
    from usu.app.server import new_token

    secure = any(origin.startswith("https://") for origin in frames)
    if is_loopback(host) and not allow_hosts:
        return Door(_LOCAL, token, tuple(frames), secure)
    if not allow_hosts:
        raise ValueError(
            f"`--allow-host` must name what the page may be called by beyond this machine; got none for {host}. "
            "For example --allow-host demo.example.org."
        )
    names = tuple(name.lower().strip("[]") for name in allow_hosts)
    return Door((*names, *_LOCAL), token or os.environ.get("USU_TOKEN") or new_token(), tuple(frames), secure)


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
    door = door_of(host, allow_hosts, frames, None)
    sock = listening(host, port)
    port = sock.getsockname()[1]
    server, closing = _server(_app(glass, limits, door, port))
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


class Page:
    """A page that is being served by a thread of this process; a notebook shows it."""

    def __init__(self, url: str, close: Callable[[], None]) -> None:
        self.url, self._close = url, close

    def close(self) -> None:
        """End it."""
        self._close()

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
    door = door_of("127.0.0.1", (), frames, None)
    sock = listening("127.0.0.1", port)
    port = sock.getsockname()[1]
    server, closing = _server(_app(glass_of(loaded, source=source), limits, door, port))
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


def _app(glass: Glass, limits: Limits | None, door: Door, port: int) -> Starlette:
    from usu.app.server import create

    return create(glass, limits=limits, door=door, port=port)


def _server(app: Starlette) -> tuple[Any, Callable[[], None]]:
    """A server for the page, and what to call when it ends."""
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError("uvicorn", "app", "The page") from None
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=30, h11_max_incomplete_event_size=32_768, limit_concurrency=512, ws="none", lifespan="off",
    )  # fmt: skip
    return uvicorn.Server(config), app.state.desk.close


def _when_started(server: Any, then: Callable[[], None]) -> None:
    end = time.monotonic() + 30
    while not server.started and time.monotonic() < end:
        time.sleep(0.02)
    then()
