"""A page of a small network, served on loopback, and a client that is no browser."""

from __future__ import annotations

import http.client
import io
import json
import math
import signal
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor, nn

from tests.small_nets import seeded
from usu.app.guard import Door
from usu.app.looking import Glass
from usu.app.serve import _server, listening
from usu.app.visitors import Limits
from usu.models import Loaded, Preparation
from usu.types import NDArray

SIDE = 32


class Small(nn.Module):
    """Two convolutions and five classes; a picture of 32 x 32 has 4 x 4 cells."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 12, 5, stride=4, padding=2), nn.ReLU()
        )
        self.head = nn.Linear(12, 5)

    def forward(self, batch: Tensor) -> Tensor:
        return 4 * self.head(self.body(batch).mean((2, 3)))


def loaded(model: Any = None) -> Loaded:
    prepare = Preparation(crop=(SIDE, SIDE), resize=None)
    return Loaded("small", seeded(Small).eval() if model is None else model, prepare, tuple("abcde"))


def glass(runs: Any = None) -> Glass:
    """A small model; ``runs`` answers in its place for everything but gradients."""
    found = loaded()
    return Glass(found, found.model if runs is None else runs)


def picture(seed: int = 0, size: tuple[int, int] = (40, 48), form: str = "PNG") -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(out, form)
    return out.getvalue()


def read_frame(data: bytes) -> tuple[str, dict[str, Any], dict[str, NDArray]]:
    """What `frame` wrote, as the page reads it."""
    header, body = struct.unpack_from("<II", data)
    values = json.loads(data[8 : 8 + header])
    content = data[8 + header : 8 + header + body]
    arrays = {}
    for one in values.pop("arrays"):
        count = math.prod(one["shape"])
        numbers = np.frombuffer(content, np.dtype(one["type"]).newbyteorder("<"), count, one["start"])
        numbers = numbers.reshape(one["shape"])
        arrays[one["name"]] = numbers if one["step"] is None else one["low"] + one["step"] * numbers
    return values.pop("kind"), values, arrays


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def frames(self) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
        found, rest = [], self.body
        while rest:
            size = 8 + int.from_bytes(rest[:4], "little") + int.from_bytes(rest[4:8], "little")
            found.append(read_frame(rest[:size]))
            rest = rest[size:]
        return found


@dataclass
class Client:
    """One visitor."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            own = {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())} if self.cookies else {}
            connection.request(method, path, data, {**own, **(headers or {})})
            got = connection.getresponse()
            for name, value in got.getheaders():
                if name.lower() == "set-cookie":
                    key, _, kept = value.partition(";")[0].partition("=")
                    self.cookies[key] = kept
            return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read())
        finally:
            connection.close()

    def visit(self) -> Client:
        assert self.ask("GET", "/").status == 200
        return self

    def open(self, data: bytes) -> Any:
        found = self.ask("POST", "/api/pictures", data)
        assert found.status == 200, found.body
        return found.json

    def explain(self, about: Any, target: int, **more: Any) -> Answer:
        body = {"target": target, **more}
        return self.ask("POST", f"/api/pictures/{about['id']}/explain", body)


@contextmanager
def served(
    what: Glass | None = None, *, limits: Limits | None = None, door: Door | None = None
) -> Iterator[tuple[int, Any]]:
    """The port, and the application."""
    sock = listening("127.0.0.1", 0)
    started = threading.Event()
    server = _server(what or glass(), limits or Limits(evaluations=48), door or Door(), sock, started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield sock.getsockname()[1], server.config.app
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(20)
        sock.close()


def until(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never"
        time.sleep(0.02)
