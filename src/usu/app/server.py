"""The page's server: what can be asked, and how the answers travel.

A picture is sent as it is, without a form or a name. Sharpening is one request whose answer is a stream of frames, so
that leaving the page, or pressing Stop, ends it like any other request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from usu.app import export, samples
from usu.app.desk import Desk
from usu.app.guard import Door, Guard
from usu.app.intake import Asked, Intake, asked_of
from usu.app.looking import BUDGETS, Glass, Opened, probabilities
from usu.app.texts import files, say
from usu.app.turns import RefusedError
from usu.app.views import WAYS, desiderata, masses
from usu.app.visitors import Limits, Visitor, Visitors
from usu.app.wire import first_frame, frame, look_frame, plain_values
from usu.models.pictures import decode
from usu.settings import PRESETS

_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}


def create(glass: Glass, *, limits: Limits | None = None, door: Door | None = None, port: int = 7860) -> Starlette:
    """The page for one model, as an ASGI application; ``app.state.desk`` answers its questions."""
    limits, door = limits or Limits(), door or Door()
    page = _Page(glass, limits, door, port)
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


async def _refused(_: Request, error: Exception) -> Response:
    return _sentence(str(error), error.status if isinstance(error, RefusedError) else 500)


async def _nowhere(_: Request, __: Exception) -> Response:
    return _sentence(say("nowhere"), 404)


class _Page:
    """The handlers, and what they share."""

    def __init__(self, glass: Glass, limits: Limits, door: Door, port: int) -> None:
        self.glass, self.limits, self.door, self.port = glass, limits, door, port
        self.desk = Desk(limits, open_about_errors=door.token is None)
        self.visitors = Visitors(limits, self.desk.turns.cancel)
        self.intake = Intake(limits.megabytes)

    async def front(self, request: Request) -> Response:
        """The page itself; with the key in its address, the key becomes a cookie and leaves the address."""
        given = request.query_params.get("token")
        if given is not None:
            response: Response = RedirectResponse("./", 303)
            if self.door.token is not None:
                response.set_cookie(f"usu_key_{self.port}", given, **self.door.cookie)
            return response
        try:
            visitor = self.visitors.welcome(request.cookies.get(self._cookie))
        except RefusedError as error:
            return Response(str(error), error.status, media_type="text/plain")
        response = Response(files()["index.html"], media_type="text/html")
        response.set_cookie(self._cookie, visitor.key, **self.door.cookie)
        return response

    async def static(self, request: Request) -> Response:
        """A file of the page."""
        name = request.path_params["name"]
        if name not in files():
            raise RefusedError(say("nowhere"), 404)
        return Response(files()[name], media_type=_TYPES["." + name.rpartition(".")[2]])

    async def health(self, _: Request) -> Response:
        """For whoever runs it."""
        healthy = self.desk.healthy
        state = {"status": "ok" if healthy else "failing", "visitors": len(self.visitors)}
        return JSONResponse({**state, "waiting": self.desk.turns.waiting}, 200 if healthy else 503)

    async def visit(self, request: Request) -> Response:
        """What the page needs to know, and what this visitor has open."""
        visitor = self._visitor(request)
        model = {"name": self.glass.loaded.name, "classes": self.glass.loaded.classes, "engine": self.glass.engine}
        limits = {"megabytes": self.limits.megabytes, "evaluations": self.limits.evaluations}
        pictures = [self._described(one) for one in visitor.pictures.values()]
        ways = {"ways": WAYS, "budgets": list(BUDGETS), "soft": PRESETS["soft"].temperature}
        known = {"model": model, "limits": limits, **ways, "samples": samples.names(), "pictures": pictures}
        return JSONResponse(plain_values(known))

    async def upload(self, request: Request) -> Response:
        """A picture, as it is."""
        visitor = self._visitor(request)
        if visitor.uploading:
            raise RefusedError(say("one_upload"), 429)
        visitor.uploading = True
        try:
            data = await self.intake.upload(request)

            def work(between: Callable[[], None], _: Any) -> Opened:
                most = 1_000_000 * self.limits.megapixels
                return self.glass.opened(decode(data, longest=self.limits.longest, most=most), between)

            return await self._open(visitor, work, {"bytes": len(data)})
        finally:
            visitor.uploading = False

    async def sample(self, request: Request) -> Response:
        """One of the pictures that come along."""
        picture = samples.picture(request.path_params["name"], self.limits.longest)
        return await self._open(self._visitor(request), lambda between, _: self.glass.opened(picture, between), {})

    async def thumbnail(self, request: Request) -> Response:
        """A small copy of one of them."""
        picture = samples.picture(request.path_params["name"], samples.SMALL)
        return Response(samples.jpeg(picture), media_type="image/jpeg")

    async def shown(self, request: Request) -> Response:
        """The visitor's picture, upright, as it is kept; never the bytes that were sent."""
        opened = self.visitors.opened(self._visitor(request), request.path_params["id"])
        return Response(samples.jpeg(opened.picture), media_type="image/jpeg")

    async def forget(self, request: Request) -> Response:
        """Forget a picture now."""
        visitor = self._visitor(request)
        opened = self.visitors.opened(visitor, request.path_params["id"])
        for question in list(visitor.asking.values()):
            self.desk.turns.cancel(question)
        del visitor.pictures[opened.id]
        return JSONResponse({})

    async def explain(self, request: Request) -> Response:
        """Coarse to fine: frames until the map is stable, somebody stops it, or leaves."""
        asked = await self._asked(request)
        opened, target = asked.opened, asked.target
        most = int(asked.number("evaluations", 24, self.limits.evaluations, min(600, self.limits.evaluations)))
        depth = int(asked.number("depth", 0, 2, 0))
        further = asked.body.get("further") is True
        view = asked.view
        settings = replace(PRESETS["soft"], ceiling=most, depth=depth)
        if opened.sampled and not further and not depth:  # what was asked for another class serves this one
            settings = replace(settings, evaluations=opened.sampled)
        about = {**opened.about, "target": target}

        def work(between: Callable[[], None], tell: Callable[[bytes], None]) -> None:
            before = opened.passes.count
            begun = self.glass.begun(opened, target)
            tell(first_frame(self.glass, opened, begun))
            between()
            if not begun.finished or further or depth:
                begun = self.glass.sharpened(
                    opened, begun, settings, between, lambda known: tell(look_frame("look", opened, known, view))
                )
            about.update(passes=opened.passes.count - before, evaluations=begun.evaluations)
            tell(look_frame("done", opened, begun, view))

        return StreamingResponse(self._frames(asked.visitor, work, about), headers={"X-Accel-Buffering": "no"})

    async def stop(self, request: Request) -> Response:
        """What there is will do: the stream ends with it."""
        question = self._visitor(request).asking.get("explain")
        if question is not None:
            question.stopped = True
        return JSONResponse({})

    async def map(self, request: Request) -> Response:
        """Another map of what is known: no model is asked."""
        asked = await self._asked(request)
        side = "right" if asked.body.get("side") == "right" else "left"
        view, known = asked.view, asked.known

        def work(_: Any, __: Any) -> bytes:
            pixel_map = view.of(known)
            values = {"target": known.target, "promised": view.promised, **masses(known, pixel_map)}
            return frame("map", values, {"map": pixel_map})

        about = {**asked.opened.about, "way": view.way}
        return Response(await self.desk.ask(asked.visitor, f"map-{side}", work, about=about))

    async def measure(self, request: Request) -> Response:
        """D1 to D4 of a map."""
        asked = await self._asked(request)
        view, known = asked.view, asked.known
        about = {**asked.opened.about, "way": view.way}

        def work(between: Callable[[], None], _: Any) -> dict[str, float]:
            return desiderata(known, view, between)

        found = await self.desk.ask(asked.visitor, "measure", work, about=about)
        return JSONResponse(plain_values({**found, "promised": view.promised}))

    async def without(self, request: Request) -> Response:
        """What if this part were gone? One evaluation."""
        asked = await self._asked(request)
        opened, target = asked.opened, asked.target
        keep = asked.keep

        def work(between: Callable[[], None], _: Any) -> bytes:
            before = opened.passes.count
            logits, view = self.glass.without(opened, keep, between)
            values = {
                "target": target,
                "before": float(probabilities(opened.logits)[target]),
                "after": float(probabilities(logits)[target]),
                "share": float((~keep).double().mean()),
                "top": self.glass.likeliest(logits),
                "passes": opened.passes.count - before,
            }
            return frame("without", values, {"view": view})

        about = {**opened.about, "target": target}
        return Response(await self.desk.ask(asked.visitor, "without", work, about=about))

    async def export(self, request: Request) -> Response:
        """Something to take away."""
        asked = await self._asked(request)
        view, known, kind = asked.view, asked.known, request.path_params["kind"]
        share = asked.number("share", 0.001, 1, 0.05)
        opened, glass = asked.opened, self.glass
        makers: dict[str, tuple[str, Callable[[], bytes]]] = {
            "npz": ("application/octet-stream", lambda: export.arrays(known, view)),
            "mask": ("image/png", lambda: export.cut_out(opened, known, view, share)),
            "folder": ("application/zip", lambda: export.folder(glass, opened, known, view)),
            "python": (
                "text/x-python",
                lambda: export.lines(glass, known, view, self.limits.longest, asked.body.get("name")).encode(),
            ),
        }
        if kind not in makers:
            raise RefusedError(say("nowhere"), 404)
        if kind == "folder" and known.scored is None:
            raise RefusedError(say("not_yet"), 409)
        media, make = makers[kind]
        about = {**opened.about, "what": kind}
        return Response(await self.desk.ask(asked.visitor, "export", lambda *_: make(), about=about), media_type=media)

    @property
    def _cookie(self) -> str:
        # browsers do not keep the cookies of two ports apart
        return f"usu_{self.port}"

    def _visitor(self, request: Request) -> Visitor:
        return self.visitors.visitor(request.cookies.get(self._cookie))

    async def _asked(self, request: Request) -> Asked:
        visitor = self._visitor(request)
        opened = self.visitors.opened(visitor, request.path_params["id"])
        return await asked_of(request, visitor, opened)

    async def _open(self, visitor: Visitor, work: Any, about: dict[str, Any]) -> Response:
        opened: Opened = await self.desk.ask(visitor, "open", work, about=about)
        about.update(opened.about)
        self.visitors.keep(visitor, opened)
        return JSONResponse(plain_values(self._described(opened)))

    def _described(self, opened: Opened) -> dict[str, Any]:
        height, width = opened.picture.pixels.shape[:2]
        return {
            "id": opened.id,
            "width": width,
            "height": height,
            "file": {"width": opened.picture.size[1], "height": opened.picture.size[0]},
            "box": opened.geometry.box,
            "input": opened.geometry.input,
            "top": self.glass.likeliest(opened.logits),
            "target": next(reversed(opened.explained), None),
        }

    async def _frames(self, visitor: Visitor, work: Any, about: dict[str, Any]) -> AsyncIterator[bytes]:
        try:
            async for one in self.desk.watch(visitor, "explain", work, about=about):
                yield one
        except RefusedError as error:
            yield frame("error", {"error": str(error), "status": error.status})
