"""What a visitor takes away: arrays, a mask, the folder of a result, and the Python lines that make it again."""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch

from usu._checks import as_numpy
from usu.app.assets import say
from usu.app.looking import Explained, Glass, Opened
from usu.app.turns import RefusedError
from usu.app.views import FAST, OWN, Look
from usu.forward.digest import versions
from usu.models.pictures import place
from usu.pipeline.certainty import certainty_of
from usu.pipeline.run import mass_error_of
from usu.results import Explanation, Upsampled
from usu.types import NDArray


def explanation_of(glass: Glass, opened: Opened, known: Explained, view: Look) -> Explanation:
    """What is on the screen as `usu.explain` would return it."""
    scored, settings, given = known.scored, view.settings, known.given
    if scored is None or known.field is None:
        raise RefusedError(say("not_yet"), 409)
    pixel_map = view.of(known)
    certainty = None if scored.effects is None else certainty_of(scored, given, settings, known.finer)
    upsampled = Upsampled(
        pixel_map=as_numpy(pixel_map),
        stderr=None if certainty is None else as_numpy(certainty.stderr),
        stability=None if certainty is None else certainty.stability,
        scores=as_numpy(known.field),
        effects=scored.effects,
        segments=scored.segments,
        depth_scores=scored.fields,
        evaluations=known.evaluations,
        stop_reason=scored.stop_reason,
        mass_error=mass_error_of(pixel_map, given.coarse, known.field, settings),
        seconds=known.seconds,
        provenance={
            "preset": settings.name,
            "settings": settings.described() | {"evaluations": known.evaluations},
            "model": glass.loaded.name,
            "engine": glass.engine,
            "notes": [known.remark] if known.remark else [],
            "target": known.target,
            "versions": versions(),
        },
    )
    return Explanation(
        known.source, as_numpy(given.coarse), upsampled, opened.view, (glass.name(known.target),),
        original=opened.picture.unit, geometry=opened.geometry, instead=known.instead,
        source_name=glass.source if isinstance(glass.source, str) else "own map",
    )  # fmt: skip


def arrays(known: Explained, view: Look) -> bytes:
    """An .npz with the map on the screen and what it was made of, every digit."""
    given, scored = known.given, known.scored
    found = {"coarse": given.coarse, "pixel_map": view.of(known)}
    found |= {f"finer_{i}": level for i, level in enumerate(given.finer or ())}
    if scored is not None:
        found["scores"] = scored.field[0]
        found |= {f"segments_{depth}": torch.from_numpy(labels) for depth, labels in enumerate(scored.segments)}
        if scored.effects is not None:
            found |= {"effects": scored.effects.mean[0], "effects_stderr": scored.effects.stderr[0]}
        if known.stderr is not None:
            found["stderr"] = known.stderr
    out = io.BytesIO()
    np.savez_compressed(out, **{name: as_numpy(value) for name, value in found.items()})  # type: ignore[arg-type]
    return out.getvalue()


def cut_out(opened: Opened, known: Explained, view: Look, share: float) -> bytes:
    """A PNG of the picture's size, white where the map is among the highest ``share`` of what the model saw."""
    placed = place(as_numpy(view.of(known)), opened.geometry)
    return encoded(np.where(placed >= np.nanquantile(placed, 1 - share), 255, 0).astype(np.uint8), "PNG")


def encoded(pixels: NDArray, form: str) -> bytes:
    """A picture's file, with nothing but its pixels."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form, quality=92)
    return out.getvalue()


def folder(glass: Glass, opened: Opened, known: Explained, view: Look) -> bytes:
    """The folder of `Explanation.save` as a zip file. It is on the disk for as long as that takes."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="usu-") as home, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        saved = explanation_of(glass, opened, known, view).save(Path(home) / "result")
        for file in sorted(saved.iterdir()):
            packed.write(file, file.relative_to(home))
    return out.getvalue()


def lines(glass: Glass, known: Explained, view: Look, longest: int, name: object) -> str:
    """Python that makes the same numbers again, given the model and the picture's file."""
    changes = [f"evaluations={max(known.evaluations, 2)}", "per_segment=0", 'engine="auto"']
    if view.way == OWN:
        depth = len(known.scored.segments) - 1 if known.scored is not None else 0
        changes += [f"temperature={view.temperature!r}"] + ([f"depth={depth}"] if depth else [])
        changes += ["budget=usu.Hybrid(0.5)", "trace=0.0"] if view.budget == "hybrid" else []
    preset = "cell" if view.way == OWN and view.budget != "soft" else "soft"
    own_map = not isinstance(glass.source, str)
    source = ", source=coarse" if own_map else "" if glass.source == "gradcam" else f", source={glass.source!r}"
    ways = {
        OWN: "pixel_map = result.pixel_map",
        FAST: 'pixel_map = usu.upsample(result.source, net.prepare(picture.pixels)[0], net, preset="fast").pixel_map',
    }
    other = f"""\
way = usu.upsamplers.by_name({view.way!r})
pixel_map = way(result.coarse, result.picture, result.upsampled.scores if way.needs_scores else None)"""
    return f"""\
from dataclasses import replace

import usu
from usu.models.pictures import read

net = usu.models.load({glass.loaded.name!r})
picture = read({safe_name(name)!r}, longest={longest})
{"coarse = ...  # the map you gave the page, h x w" if own_map else ""}
settings = replace(usu.PRESETS["{preset}"], {", ".join(changes)})
result = usu.explain(net, picture, {known.target}{source}, preset=settings)
{ways.get(view.way, other)}
result.save("result")
"""


def safe_name(name: object) -> str:
    """A file name as it may stand in a program: no folders, no signs that a terminal obeys.

    >>> safe_name("../../etc/cat\\x1b[2J.png"), safe_name(None)
    ('cat[2J.png', 'picture.jpg')
    """
    plain = re.split(r"[/\\]", name)[-1] if isinstance(name, str) else ""
    kept = "".join(sign for sign in plain if sign.isprintable())[:120].strip(". ")
    return kept or "picture.jpg"
