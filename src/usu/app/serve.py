"""From a model to a page in a browser: as a program that runs until it is told to end, or beside a notebook."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np

from usu.app.guard import Door, address, door_of
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


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any that is free."""
    six = ":" in host
    family, both = socket.AF_INET6 if six else socket.AF_INET, six and socket.has_dualstack_ipv6()
    try:
        return socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=both)
    except OSError as error:
        why = (error.strerror or "").partition(" (while")[0]
        raise UsuError(f"The page cannot listen on {host}, port {port} ({why}). Try --port 0.") from None


def serve(
    glass: Glass,
    host: str = "127.0.0.1",
    port: int = 7860,
    limits: Limits | None = None,
    *,
    allow_hosts: Sequence[str] = (),
    frames: Sequence[str] = (),
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the page until SIGTERM or Ctrl-C; ``ready`` is told its address. Both end it cleanly."""
    door = door_of(host, allow_hosts, frames)
    with listening(host, port) as sock:
        url = address(host, sock.getsockname()[1], door)
        _server(glass, limits, door, sock, lambda: ready(url)).run(sockets=[sock])


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
    glass, door, started = glass_of(loaded, source=source), door_of("127.0.0.1", (), frames), threading.Event()
    sock = listening("127.0.0.1", port)
    server = _server(glass, limits, door, sock, started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    started.wait(30)

    def close() -> None:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(_GRACE + 2)
        sock.close()

    # "localhost", because that is what notebooks are called by: cookies go to the same name only
    return Page(f"http://localhost:{sock.getsockname()[1]}/", close)


def _server(glass: Glass, limits: Limits | None, door: Door, sock: socket.socket, ready: Callable[[], None]) -> Any:
    """A server for the page; a thread of its own calls ``ready`` when it answers."""
    try:
        import uvicorn

        from usu.app.server import create
    except ImportError:
        raise MissingExtraError("uvicorn", "app", "The page") from None

    app = create(glass, limits=limits, door=door, port=sock.getsockname()[1])

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            threading.Thread(target=ready, daemon=True).start()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.desk.close()
            # uvicorn's own would raise the signal once more in the end, which would look like a crash
            self.force_exit = self.should_exit
            self.should_exit = True

    return Server(
        uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=_GRACE,
            timeout_keep_alive=30, h11_max_incomplete_event_size=32_768, limit_concurrency=512, ws="none",
            lifespan="off",
        )
    )  # fmt: skip
