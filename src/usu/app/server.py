"""The page's server: what can be asked, and how the answers travel.

A picture is sent as it is, without a form or a name. Sharpening is one request whose answer is a stream of frames, so
that leaving the page, or pressing Stop, ends it like any other request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import cache
from mimetypes import MimeTypes
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from usu.app import export
from usu.app.assets import files, samples, say
from usu.app.desk import Desk, Work
from usu.app.guard import Door, Guard
from usu.app.looking import BUDGETS, Between, Glass, Opened, probabilities
from usu.app.turns import HANGING, RefusedError
from usu.app.views import WAYS, desiderata, first_frame, frame, look_frame, map_frame, plain_values
from usu.app.visitors import Asked, Limits, Visitor, Visitors, asked_of
from usu.models.pictures import Picture, decode, read
from usu.settings import PRESETS

_TYPES = MimeTypes()
#: Uploads that are read at once, and how many there may be with those that wait for that.
_READING, _UPLOADS = 4, 16
#: The longer side of a thumbnail.
_SMALL = 320
#: The most bytes of a question, and the seconds that one request may take to arrive.
_QUESTION, _PATIENCE = 100_000, 60


def create(glass: Glass, *, limits: Limits | None = None, door: Door | None = None, port: int = 7860) -> Starlette:
    """The page for one model, as an ASGI application; ``app.state.desk`` answers its questions."""
    door = door or Door()
    page = _Page(glass, limits or Limits(), door, port)
    routes = [
        Route("/", page.front),
        Route("/health", page.health),
        Route("/static/{name}", page.static),
        Route("/api/visit", page.visit),
        Route("/api/samples/{name}", page.thumbnail),
        Route("/api/samples/{name}", page.sample, methods=["POST"]),
        Route("/api/pictures", page.upload, methods=["POST"]),
        Route("/api/pictures/{id}", page.shown),
        Route("/api/pictures/{id}", page.forget, methods=["DELETE"]),
        Route("/api/pictures/{id}/explain", page.explain, methods=["POST"]),
        Route("/api/pictures/{id}/stop", page.stop, methods=["POST"]),
        Route("/api/pictures/{id}/map", page.map, methods=["POST"]),
        Route("/api/pictures/{id}/measure", page.measure, methods=["POST"]),
        Route("/api/pictures/{id}/without", page.without, methods=["POST"]),
        Route("/api/pictures/{id}/export/{kind}", page.export, methods=["POST"]),
    ]
    guard = Middleware(Guard, door=door, refuse=lambda key, status: _sentence(say(key), status), key=f"usu_key_{port}")
    app = Starlette(routes=routes, middleware=[guard], exception_handlers={RefusedError: _refused, 404: _nowhere})
    app.state.desk, app.state.visitors = page.desk, page.visitors
    return app


def _sentence(text: str, status: int) -> JSONResponse:
    # what is left of a body nobody wants is not read
    return JSONResponse({"error": text}, status, headers={"Connection": "close"} if status == 413 else None)


async def _refused(request: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, RefusedError) else 500
    if request.url.path == "/":  # a person reads it, not the page's script
        return PlainTextResponse(str(error), status)
    return _sentence(str(error), status)


async def _nowhere(_: Request, __: Exception) -> Response:
    return _sentence(say("nowhere"), 404)


async def _body(request: Request, most: int) -> bytes:
    """What was sent, if it is no more than so many bytes and does not take for ever."""
    too_much = RefusedError(say("too_large").format(megabytes=f"{most / 1e6:g}"), 413)
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > most:
        raise too_much

    async def whole() -> bytes:
        found = bytearray()
        async for part in request.stream():
            found += part
            if len(found) > most:
                raise too_much
        return bytes(found)

    try:
        return await asyncio.wait_for(whole(), _PATIENCE)
    except asyncio.TimeoutError:
        raise RefusedError(say("slow_upload"), 408) from None
    except ClientDisconnect:
        raise RefusedError(say("superseded"), 409) from None


@cache
def _sample(name: str, longest: int) -> Picture:
    if name not in samples():
        raise RefusedError(say("nowhere"), 404)
    return read(samples()[name], longest=longest)


def _jpeg(picture: Picture) -> Response:
    return Response(export.encoded(picture.pixels, "JPEG"), media_type="image/jpeg")


class _Page:
    """The handlers, and what they share."""

    def __init__(self, glass: Glass, limits: Limits, door: Door, port: int) -> None:
        self.glass, self.limits, self.door, self.port = glass, limits, door, port
        self.desk = Desk(limits, open_about_errors=door.token is None)
        self.visitors = Visitors(limits, self.desk.turns.cancel)
        self.reading, self.uploads = asyncio.Semaphore(_READING), 0
        #: Browsers do not keep the cookies of two ports apart.
        self.cookie = f"usu_{port}"

    async def front(self, request: Request) -> Response:
        """The page itself; with the key in its address, the key becomes a cookie and leaves the address."""
        given = request.query_params.get("token")
        if given is not None:
            response: Response = RedirectResponse("./", 303)
            if self.door.token is not None:
                response.set_cookie(f"usu_key_{self.port}", given, **self.door.cookie)
            return response
        visitor = self.visitors.welcome(request.cookies.get(self.cookie))
        response = Response(files()["index.html"], media_type="text/html")
        response.set_cookie(self.cookie, visitor.key, **self.door.cookie)
        return response

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in files():
            raise RefusedError(say("nowhere"), 404)
        return Response(files()[name], media_type=_TYPES.guess_type(name)[0])

    async def health(self, _: Request) -> Response:
        healthy = not self.desk.closing and self.desk.turns.lost < HANGING
        state = {"status": "ok" if healthy else "failing", "visitors": len(self.visitors)}
        return JSONResponse({**state, "waiting": self.desk.turns.waiting}, 200 if healthy else 503)

    async def visit(self, request: Request) -> Response:
        """What the page needs to know, and what this visitor has open."""
        loaded = self.glass.loaded
        known = {
            "model": {"name": loaded.name, "classes": loaded.classes},
            "limits": {"megabytes": self.limits.megabytes, "evaluations": self.limits.evaluations},
            "ways": WAYS,
            "budgets": list(BUDGETS),
            "soft": PRESETS["soft"].temperature,
            "samples": list(samples()),
            "pictures": [self._described(one) for one in self._visitor(request).pictures.values()],
        }
        return JSONResponse(plain_values(known))

    async def upload(self, request: Request) -> Response:
        visitor = self._visitor(request)
        if visitor.uploading:
            raise RefusedError(say("one_upload"), 429)
        visitor.uploading = True
        try:
            data = await self._upload(request)
            most = 1_000_000 * self.limits.megapixels
            about = {"bytes": len(data)}
            return await self._open(visitor, lambda: decode(data, longest=self.limits.longest, most=most), about)
        finally:
            visitor.uploading = False

    async def _upload(self, request: Request) -> bytes:
        """A few at a time: all of what is read is in memory."""
        if self.uploads >= _UPLOADS:
            raise RefusedError(say("busy"), 503)
        self.uploads += 1
        try:
            async with self.reading:
                return await _body(request, 1_000_000 * self.limits.megabytes)
        finally:
            self.uploads -= 1

    async def sample(self, request: Request) -> Response:
        picture = _sample(request.path_params["name"], self.limits.longest)
        return await self._open(self._visitor(request), lambda: picture, {})

    async def thumbnail(self, request: Request) -> Response:
        return _jpeg(_sample(request.path_params["name"], _SMALL))

    async def shown(self, request: Request) -> Response:
        """The visitor's picture, upright, as it is kept; never the bytes that were sent."""
        return _jpeg(self._visitor(request).opened(request.path_params["id"]).picture)

    async def forget(self, request: Request) -> Response:
        visitor = self._visitor(request)
        opened = visitor.opened(request.path_params["id"])
        for question in list(visitor.asking.values()):
            self.desk.turns.cancel(question)
        del visitor.pictures[opened.id]
        return JSONResponse({})

    async def explain(self, request: Request) -> Response:
        """Coarse to fine: frames until the map is stable, somebody stops it, or leaves."""
        asked = await self._asked(request)
        opened, further = asked.opened, asked.body.get("further") is True
        settings = replace(PRESETS["soft"], ceiling=asked.evaluations, depth=asked.depth)
        if opened.sampled and not further and not asked.depth:  # what was asked for another class serves this one
            settings = replace(settings, evaluations=opened.sampled)
        about = asked.about

        def work(between: Between, tell: Callable[[bytes], None]) -> None:
            before = opened.passes.count
            begun = self.glass.begun(opened, asked.target)
            tell(first_frame(self.glass, opened, begun))
            between()
            if not begun.finished or further or asked.depth:
                begun = self.glass.sharpened(
                    opened, begun, settings, between, lambda known: tell(look_frame("look", opened, known, asked.view))
                )
            about.update(passes=opened.passes.count - before, evaluations=begun.evaluations)
            tell(look_frame("done", opened, begun, asked.view))

        async def frames() -> AsyncIterator[bytes]:
            try:
                async for one in self.desk.watch(asked.visitor, "explain", work, about):
                    yield one
            except RefusedError as error:
                yield frame("error", {"error": str(error), "status": error.status})

        return StreamingResponse(frames(), headers={"X-Accel-Buffering": "no"})

    async def stop(self, request: Request) -> Response:
        """What there is will do: the stream ends with it."""
        question = self._visitor(request).asking.get("explain")
        if question is not None:
            question.stopped = True
        return JSONResponse({})

    async def map(self, request: Request) -> Response:
        """Another map of what is known: no model is asked."""
        asked = await self._asked(request)
        kind = "map-right" if asked.body.get("side") == "right" else "map-left"
        return Response(await self._answer(asked, kind, lambda *_: map_frame(asked.known, asked.view)))

    async def measure(self, request: Request) -> Response:
        asked = await self._asked(request)
        found = await self._answer(asked, "measure", lambda between, _: desiderata(asked.known, asked.view, between))
        return JSONResponse(plain_values({**found, "promised": asked.view.promised}))

    async def without(self, request: Request) -> Response:
        """What if this part were gone? One evaluation."""
        asked = await self._asked(request)
        opened, target, keep = asked.opened, asked.target, asked.keep

        def work(*_: Any) -> bytes:
            before = opened.passes.count
            logits, view = self.glass.without(opened, keep)
            values = {
                "target": target,
                "before": float(probabilities(opened.logits)[target]),
                "after": float(probabilities(logits)[target]),
                "share": float((~keep).double().mean()),
                "top": self.glass.likeliest(logits),
                "passes": opened.passes.count - before,
            }
            return frame("without", values, {"view": view})

        return Response(await self._answer(asked, "without", work))

    async def export(self, request: Request) -> Response:
        asked = await self._asked(request)
        kind, name, longest = request.path_params["kind"], asked.body.get("name"), self.limits.longest
        view, known, opened, glass = asked.view, asked.known, asked.opened, self.glass
        makers: dict[str, tuple[str, Callable[[], bytes]]] = {
            "npz": ("application/octet-stream", lambda: export.arrays(known, view)),
            "mask": ("image/png", lambda: export.cut_out(opened, known, view, asked.share)),
            "folder": ("application/zip", lambda: export.folder(glass, opened, known, view)),
            "python": ("text/x-python", lambda: export.lines(glass, known, view, longest, name).encode()),
        }
        if kind not in makers:
            raise RefusedError(say("nowhere"), 404)
        media, make = makers[kind]
        return Response(await self._answer(asked, f"export-{kind}", lambda *_: make()), media_type=media)

    def _visitor(self, request: Request) -> Visitor:
        return self.visitors.visitor(request.cookies.get(self.cookie))

    async def _asked(self, request: Request) -> Asked:
        visitor = self._visitor(request)
        opened = visitor.opened(request.path_params["id"])
        return asked_of(await _body(request, _QUESTION), visitor, opened, self.limits)

    async def _answer(self, asked: Asked, kind: str, work: Work) -> Any:
        return await self.desk.ask(asked.visitor, kind, work, asked.about)

    async def _open(self, visitor: Visitor, picture: Callable[[], Picture], about: dict[str, Any]) -> Response:
        def work(*_: Any) -> Opened:
            opened = self.glass.opened(picture())
            about.update(opened.about)
            return opened

        opened: Opened = await self.desk.ask(visitor, "open", work, about)
        self.visitors.keep(visitor, opened)
        return JSONResponse(plain_values(self._described(opened)))

    def _described(self, opened: Opened) -> dict[str, Any]:
        height, width = opened.picture.pixels.shape[:2]
        return {
            "id": opened.id,
            "width": width,
            "height": height,
            "box": opened.geometry.box,
            "top": self.glass.likeliest(opened.logits),
            "target": next(reversed(opened.explained), None),
        }
