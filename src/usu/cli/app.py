"""``usu app``: the page in a browser."""

from __future__ import annotations

import logging
import sys
import webbrowser
from typing import Annotated

import typer

from usu.cli import run


def app(
    model: run.Model = "efficientnet_lite0",
    weights: run.Weights = None,
    source: Annotated[str, typer.Option(help="As for usu explain; a .npy file for an ONNX model.")] = "gradcam",
    engine: run.Engine = "auto",
    device: run.Device = "cpu",
    host: Annotated[str, typer.Option(help="The address to listen on; this machine alone if not given.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any that is free.", min=0, max=65535)] = 7860,
    allow_host: Annotated[list[str] | None, typer.Option(help="A name others call the page by; repeatable.")] = None,
    allow_frame: Annotated[list[str] | None, typer.Option(help="An origin that may frame it; repeatable.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    megabytes: Annotated[int, typer.Option(help="The largest upload.", min=1)] = 20,
    megapixels: Annotated[int, typer.Option(help="The largest picture.", min=1)] = 64,
    visitors: Annotated[int, typer.Option(help="People at once.", min=1)] = 32,
    idle: Annotated[int, typer.Option(help="Minutes of silence after which a visitor is forgotten.", min=1)] = 30,
    seconds: Annotated[int, typer.Option(help="Of work on one question, waiting not counted.", min=1)] = 60,
    evaluations: Annotated[int, typer.Option(help="Model evaluations for one map, at most.", min=24)] = 1200,
) -> None:
    """Open the page: drop a picture and see why the model says what it says.

    It listens on this machine alone. Beyond that it wants --host, --allow-host and a key, which is made at the start
    and is part of the address it prints (or taken from USU_TOKEN). The log on standard error has one line of JSON for
    every question, without the picture. Ctrl-C or SIGTERM ends it.
    """
    for package in ("starlette", "uvicorn"):
        run.need(package, "app", "The page")
    run.load_torch()
    from usu.app import Limits, glass_of, serve
    from usu.models import load

    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logging.getLogger("usu.app").addHandler(log)
    logging.getLogger("usu.app").setLevel(logging.INFO)
    origin = run.source_from(source)
    loaded = load(model, weights=weights, device=device)
    glass = glass_of(loaded, source=origin, engine=engine)  # type: ignore[arg-type]
    if glass.note:
        run.note(glass.note)

    def ready(url: str) -> None:
        run.tell(f"{glass.loaded.name} is at {url}")
        sys.stdout.flush()
        if browser and sys.stdout.isatty():
            webbrowser.open(url)

    limits = Limits(megabytes, megapixels, visitors=visitors, idle=idle, seconds=seconds, evaluations=evaluations)
    serve(glass, host, port, limits, allow_hosts=allow_host or (), frames=allow_frame or (), ready=ready)
