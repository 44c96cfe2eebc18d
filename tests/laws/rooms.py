"""The numbers of every room for a few seeds, by public names alone; `test_numbers` holds them to stored ones.

Names with a ``~`` hold numbers made in single precision by design: blur, noise, imputation, prepared pictures.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import torch

import usu
from tests.laws.subjects import GRID, SIZE, Patches, convolutions, drawn, image_of, labelled, network, parts, photograph
from usu import models, potentials

Numbers = dict[str, Any]


def operator() -> Numbers:
    found: Numbers = {}
    scores, base = drawn(*SIZE, seed=1), drawn(*SIZE, seed=4)
    maps = {"plain": drawn(*GRID, seed=2), "signed": drawn(*GRID, seed=3, signed=True)}
    budgets: Numbers = {name: {"budget": name} for name in ("cell", "iwmr", "hybrid")}
    budgets["mass"] = {"budget": usu.SoftIWMR(0.2, prior="mass")}
    budgets["smooth"] = {"budget": usu.SoftIWMR(0.3, importance="logmeanexp")}
    budgets["mixed"] = {"budget": usu.Hybrid(0.3, usu.SoftIWMR(0.05))}
    ways: Numbers = {
        "warm": {"temperature": 0.7}, "cold": {"temperature": 0.01}, "power": {"potential": potentials.power(2.0)},
        "odds": {"potential": potentials.log_odds(0.8)}, "own": {"potential": lambda s: 1 + s * s},
        "literal": {"signed": "literal"}, "literal iwmr": {"signed": "literal", "budget": "iwmr", "max_gain": 2.0},
        "ceiling": {"max_gain": 1.7}, "base": {"base": base}, "base ceiling": {"base": base, "max_gain": 3.0},
        "as mass": {"coarse_is": "mass"}, "prior": {"budget": usu.SoftPrior(0.5, 0.03)},
        "prior base": {"budget": usu.SoftPrior(0.8, 0.1), "base": base},
    }  # fmt: skip
    for sign, coarse in maps.items():
        for name, way in (budgets | ways).items():
            found[f"{sign} {name}"] = usu.redistribute(coarse, scores, **way)
        for name, way in budgets.items():
            found[f"{sign} {name} budgets"] = usu.cell_budgets(coarse, scores, **way)
    values = np.where(np.arange(11) == 4, 0, drawn(11, seed=5, signed=True))
    for name in ("cell", "as mass", "ceiling", "iwmr"):
        found[f"labels {name}"] = usu.redistribute(values, scores, cells=labelled(), **(budgets | ways)[name])
    found["batch"] = usu.redistribute(drawn(3, 2, 2, 4, seed=6), drawn(3, 1, 9, 11, seed=7), temperature=0.3)
    a, b, c = (torch.from_numpy(one).requires_grad_() for one in (maps["signed"], scores, base))
    for name, way in {"cell": {}, "mixed": budgets["mixed"], "ceiling": {"base": c, "max_gain": 3.0}}.items():
        result = usu.redistribute(a, b, **way) * torch.from_numpy(drawn(*SIZE, seed=8))
        slopes = torch.autograd.grad(result.sum(), [a, b, c][: 3 if "base" in way else 2])
        found |= {f"gradient {name} {number}": slope for number, slope in enumerate(slopes)}
    return found


def upsamplers() -> Numbers:
    found: Numbers = {}
    names = (
        "nearest bilinear bicubic lanczos3 bilinear-corrected guided guided-corrected joint-bilateral segment-pooled"
    )
    for signed in (False, True):
        coarse = drawn(*GRID, seed=9, signed=signed)
        for name in names.split():
            found[f"{name} {signed}"] = usu.upsamplers.by_name(name)(coarse, photograph())
        for mode, size in product(("nearest", "bilinear", "bicubic", "lanczos3"), (SIZE, (3, 4))):
            found[f"{mode} {signed} {size[0]}"] = usu.interpolate(coarse, size, mode)
    return found


def segment() -> Numbers:
    room, picture = usu.segment, photograph()
    found: Numbers = {}
    region = np.hypot(*(np.mgrid[: SIZE[0], : SIZE[1]] - np.array([[[20]], [[30]]]))) < 17
    kinds = {"slic": room.Slic(), "loose": room.Slic(compactness=3.0, smoothing=1.0), "felz": room.Felzenszwalb()}
    for (name, segmenter), count in product(kinds.items(), (3, 25)):
        found[f"{name} {count}"] = segmenter(picture, count)
        found[f"{name} {count} region"] = segmenter(picture, count, region=region)
    bright = picture.mean(2)
    found["masks"] = room.from_masks([bright > 0.2, bright > 0.5, region])(picture, 1)
    found["labels"] = room.from_labels(labelled() * 3)(picture, 1)
    found["split"] = room.split(parts(), [0, 5, 3], picture, room.Slic(), 4)
    found["split within a limit"] = room.split(parts(), [7, 1, 2, 9], picture, room.Felzenszwalb(), 3, limit=5)
    found["connected"], found["merged"] = room.connected(labelled()), room.merge_to(room.connected(labelled()), 6)
    found["touching"], found["boundary"] = room.adjacency(parts()), room.boundary(parts()).astype(np.int64)
    return found


def watershed() -> Numbers:
    return {way: usu.segment.Watershed(way)(photograph(), 20) for way in ("area", "dynamics", "volume")}


def score() -> Numbers:
    found: Numbers = {}
    image, labels, which = image_of(), parts(), np.array([0, 3, 4, 9])
    one, two = usu.forward.engine(network(), 2), usu.forward.engine(network(), [0, 3], link="log_probability")
    for name, fill in {
        "~blur": "blur",
        "~noise": "noise",
        "mean": "mean",
        "grey": 0.2,
        "rgb": [0.1, -0.2, 0.3],
    }.items():
        found[f"delete {name}"] = usu.score.delete(one, image, labels, fill=fill).values
    for mode in ("keep", "both"):
        found[mode] = usu.score.delete(two, image, labels, mode=mode, which=which, fill="mean").values[:, which]
    found["gradient"] = usu.score.gradient(two, image, labels, fill="mean").values
    for name, way in {
        "ridge": {}, "least squares": {"strength": 0.0}, "rare": {"keep_probability": 0.8, "strength": 1.0},
        "shap": {"fit": "kernel_shap"}, "some": {"which": which, "seed": 4},
    }.items():  # fmt: skip
        scored, some = usu.score.sampled(two, image, labels, evaluations=50, fill="mean", **way), way.get("which", ...)
        found[name], found[f"{name} errors"] = scored.values[..., some], scored.stderr[..., some]
    found["needed"] = usu.score.needed(labels, labelled(), np.arange(11) % 3).numpy().astype(np.int64)
    found["top class"] = usu.forward.engine(network(), link="probability").aim(image).values.tolist()
    fills = getattr(usu, "fills", None) or usu.perturb
    for name, fill in {"~blur": fills.Blur(0.1), "~noise": fills.Noise(0.5, 3), "mean": fills.Mean()}.items():
        found[f"fill {name}"] = fill(image).flatten(0, 1)
    return found


def refine() -> Numbers:
    found: Numbers = {}
    coarse, fine = drawn(8, seed=1)[labelled() % 8], drawn(*SIZE, seed=2)
    for kind in ("range", "diagonal"):
        h = found[kind] = usu.heterogeneity(coarse, kind)
        alpha = found[f"{kind} mixing"] = usu.mixing(h, 0.2, 0.03)
        found[f"{kind} merged"] = usu.merge(coarse, fine, alpha)
        found[f"{kind} marked"] = usu.boundary_segments(h, parts(), 0.3)
    return found


def sources() -> Numbers:
    found: Numbers = {}
    batch = torch.stack([image_of(), image_of("coffee")])
    for source in (usu.gradcam, usu.hirescam, usu.layercam):
        name = source.__name__
        for target, relu in ((None, True), ([1, 4], False)):
            got = source(network(), batch, target, relu=relu)
            found[f"{name} {relu}"] = got.values
            found[f"{name} {relu} about"] = [got.layer, *got.targets, got.evaluations]
        found[f"{name} tokens"] = source(network(Patches), batch, 1, relu=False).values
        found[f"{name} named"] = source(network(), batch, 1, layer="2").values
    finer = usu.gradcam(network(), batch, 2, finer=True, relu=False).finer
    found |= {f"finer {number}": level for number, level in enumerate(finer)}
    for source in (usu.attention_rollout, usu.gradient_attention):
        found[source.__name__] = source(network(Patches), batch, [0, 2]).values
    found["reshaped"] = usu.reshape_transform(network(Patches), SIZE)(torch.from_numpy(drawn(1, 49, 3, seed=1)))
    return found


#: `cell` and `soft` as they were before scores had a posterior.
FORMER: Numbers = {
    "segmenter": usu.segment.Slic(smoothing=1.0), "parts": 150, "temperature": 0.2, "link": "logit", "fit": "ridge",
    "scale": "range",
}  # fmt: skip


def small(preset: str, **changes: Any) -> usu.Settings:
    """A preset for pictures of this size."""
    former = FORMER if preset in ("cell", "soft") else {}
    scored = {} if preset == "fast" else {"parts": 14, "evaluations": None if preset == "paper" else 45, "fill": "mean"}
    return replace(usu.PRESETS[preset], **former | scored | changes)


def presets() -> Numbers:
    found: Numbers = {}
    plain, signed = drawn(*GRID, seed=2), drawn(*GRID, seed=3, signed=True)
    plain[plain < 0.3] = 0
    shown: Numbers = {"image": image_of(), "target": 2, "picture": photograph()}

    def kept(name: str, coarse: Any, settings: usu.Settings, **given: Any) -> None:
        got = usu.upsample(coarse, model=network(), preset=settings, **shown | given)
        reasons = got.stop_reason if isinstance(got.stop_reason, tuple) else (got.stop_reason,)
        found[name], found[f"{name} scores"] = got.pixel_map, got.scores
        found[f"{name} about"] = [got.evaluations, *(reason.name for reason in reasons)]

    for preset in usu.PRESETS:
        kept(preset, plain, small(preset))
        kept(f"{preset} signed", signed, small(preset), target=None)
    for mode in ("delete", "keep", "both"):
        kept(mode, plain, small("cell", scoring="delete", mode=mode, evaluations=None))
    for scoring in ("gradient",):
        kept(scoring, signed, small("soft", scoring=scoring))
    kept("kernel shap", plain, small("cell", fit="kernel_shap", link="log_probability", seed=3))
    for depth, kind in product((1, 2), ("range", "diagonal")):
        kept(f"depth {depth} {kind}", plain, small("cell", depth=depth, heterogeneity=kind, threshold=0.05))
    kept("paper to the segment", plain, small("paper", reach="segment", evaluations=40, children=3))
    kept("edges of segments", plain, small("cell", edges="segments", trace=0.0))
    kept("bilinear", signed, small("cell", base="bilinear", max_gain=2.0, budget="hybrid"))
    kept("no base", signed, small("soft", base=None, budget="iwmr", potential=potentials.power(1.5)))
    kept("felzenszwalb", plain, small("cell", segmenter=usu.segment.Felzenszwalb(), fill=0.1))
    for preset, fill in product(("cell", "soft"), ("blur", "noise")):
        kept(f"~{preset} {fill}", plain, small(preset, fill=fill))
    kept("min-max", plain, small("cell"), picture=None)
    kept("several", np.stack([plain, signed]), small("soft"), target=[1, 4])
    kept("cells", drawn(11, seed=5, signed=True), small("cell", base="bilinear"), cells=labelled())
    both = {"image": torch.stack([image_of(), image_of("coffee")]), "target": [3, 0]}
    both["picture"] = np.stack([photograph(), photograph("coffee")])
    kept("batch", np.stack([plain, signed]), small("cell", depth=1), **both)
    return found


def explain() -> Numbers:
    found: Numbers = {}
    for kind, source in (
        *product([convolutions], ("gradcam", "hirescam", "layercam")),
        *product([Patches], ("layercam", "attention_rollout", "gradient_attention")),
    ):
        got, name = usu.explain(network(kind), image_of("coffee"), source=source, preset=small("soft")), kind.__name__
        found[f"{name} {source}"], found[f"{name} {source} coarse"] = got.pixel_map, got.coarse
        found[f"{name} {source} about"] = [got.label, got.source.layer, got.upsampled.evaluations]
    own = usu.explain(network(), image_of(), 1, source=drawn(*GRID, seed=4), preset=small("fast"))
    return found | {"own map": own.pixel_map}


def metrics() -> Numbers:
    room, coarse, known, truth = usu.metrics, drawn(*GRID, seed=2), drawn(*SIZE, seed=9), labelled() % 4 == 1
    every: Numbers = {}
    # no two pixels alike: how ties are broken depends on the processor (numpy's unstable sort, and the last bit)
    steep = usu.redistribute(coarse, drawn(20, seed=6)[parts()], temperature=0.2) + 1e-3 * drawn(*SIZE, seed=10)
    signed = usu.redistribute(drawn(*GRID, seed=3, signed=True), drawn(*SIZE, seed=7))
    for sign, field in {"steep": steep, "signed": signed}.items():
        found: Numbers = {}
        asking = (field, image_of(), network())
        for name, fill in {"mean": "mean", "~blur": "blur"}.items():
            found[f"deletion {name}"] = room.deletion(*asking, 2, fill=fill, steps=9, link="probability")
            found[f"insertion {name}"] = room.insertion(*asking, None, fill=fill, steps=9, link="logit")
            found[f"half deletion {name}"] = room.half_deletion(*asking, GRID, 2, fill=fill)
            found[f"infidelity {name}"] = room.infidelity(*asking, 2, blocks=30, fill=fill)
        found["infidelity raw"] = room.infidelity(*asking, 2, blocks=30, sides=(0.1, 0.5), scaling="raw")
        found["pixel flipping"] = room.pixel_flipping(*asking, 2, steps=12)
        found["monotonicity"] = room.monotonicity_correlation(*asking, 2, steps=12)
        found["irof"] = room.irof(*asking, 2, segments=(4, 5), generator=1)
        found["irof parts"] = room.irof(*asking, 2, segments=parts(), fill=0)
        found["quantus irof"] = room.irof(*asking, 2, segments=(4, 5), fill=0, compat="quantus")
        # Quantus orders equal pixels as numpy's unstable sort leaves them, which differs between processors
        distinct = (field + 1e-6 * drawn(*SIZE, seed=11), *asking[1:])
        for fill in ("black", "mean", "uniform"):
            way = {"fill": fill, "compat": "quantus"}
            found[f"quantus flipping {fill}"] = room.pixel_flipping(*distinct, 2, steps=12, **way)
            found[f"quantus monotonicity {fill}"] = room.monotonicity_correlation(*distinct, 2, steps=12, **way)
            if fill != "uniform":
                found[f"quantus infidelity {fill}"] = room.infidelity(*asking, 2, patch_sizes=(8, 16), **way)
        for order in ("both", "most", "least"):
            found[f"~road {order}"] = room.road(*asking, 2, percentages=(20, 60), order=order, noise=0.01)
        for metric in (room.concentration, room.energy_in_mask, room.iou, room.area_iou):
            found[metric.__name__] = metric(field, truth)
        found["pointing"] = [room.pointing_game(field, truth, tolerance=reach) for reach in (0, 4, 30)]
        found["auroc"] = [room.cell_auroc(field, truth, GRID), room.cell_auroc(field, truth, labelled(), least=9)]
        found["seams"] = [room.seam_energy(field, cells, parts()) for cells in (GRID, labelled())]
        found["sparseness"] = [room.sparseness(field), room.sparseness(field, compat="quantus")]
        for metric in (room.mass_error, room.moved_mass, room.largest_gain):
            grid = [metric(field, drawn(*GRID, seed=8), coarse_is=kind) for kind in ("density", "mass")]
            found[metric.__name__] = [*grid, metric(field, drawn(11, seed=8), cells=labelled())]
        found["matched"] = room.quantile_match(field, usu.interpolate(coarse, SIZE, "bilinear"))
        found["alpha"], found["beta"] = usu.alpha_beta_errors(field, known)
        found["deficit"], found["excess"] = usu.mass_imbalance(field, known, GRID)
        found["deficit of labels"], found["excess of labels"] = usu.mass_imbalance(field, known, labelled())
        every |= {f"{sign} {name}": value for name, value in found.items()}
    every["~imputed"] = room.noisy_linear(photograph().mean(2), labelled() % 3 > 0, noise=0.02, generator=3)
    return every


def statistics() -> Numbers:
    room = usu.stats
    found: Numbers = {}
    for n, step in ((9, 0), (24, 0), (24, 0.2), (70, 0), (70, 0.1)):
        a, b = (np.round(one / step) * step if step else one for one in (drawn(n, seed=n) + 0.1, drawn(n, seed=n + 1)))
        sides = [room.wilcoxon(a, b, alternative=side) for side in ("two-sided", "greater", "less")]
        shift = room.hodges_lehmann_interval(a, b, confidence=0.9)
        found[f"wilcoxon {n} {step}"] = [one for side in sides for one in (side.p, side.statistic, side.zeros)]
        found[f"shift {n} {step}"] = [room.hodges_lehmann(a, b), shift.low, shift.high]
        effects = (room.cohens_d, room.paired_d, room.win_rate, room.rank_biserial)
        found[f"effects {n} {step}"] = [effect(a, b) for effect in effects]
    ps = drawn(12, seed=4) ** 4
    found["families"] = [*room.holm(ps), *room.bonferroni(ps), *room.holm(ps, family=40)]
    report = (import_module("usu.comparison") if find_spec("usu.comparison") else room).report
    columns = {name: drawn(15, seed=seed) + 0.1 * seed for seed, name in enumerate(("bilinear", "one", "two"))}
    columns["two"][[3, 8]] = np.nan
    table = {"iou": ("higher", columns), "error": ("lower", {"bilinear": columns["one"], "one": columns["bilinear"]})}
    for record in report(table, resamples=500, tolerance=0.01, family=9).records():
        found[f"report {record['metric']} {record['upsampler']}"] = [*record.values()]
    return found


def evaluate() -> Numbers:
    samples = [
        usu.Sample(name, image_of(name), photograph(name), target, truth=labelled() % 4 == number)
        for number, (name, target) in enumerate((("astronaut", 2), ("coffee", None)))
    ]
    rivals = [
        "nearest",
        "guided-corrected",
        ("own", small("cell")),
        "cell-permuted-scores:mean",
        "soft-shuffled-coarse:mean",
    ]
    names = ["half-deletion", "insertion-deletion", "infidelity-matched", "mass-error", "seam-energy", "cell-auroc"]
    table = usu.evaluate(rivals, samples, network(), names, evaluations=40, seed=1)
    found: Numbers = {"failures": [*table.failures.values()]}
    for row in csv.DictReader(table.csv().splitlines()):
        told = [int(row[column]) for column in ("target", "evaluations", "metric_evaluations")]
        found[" ".join(row[key] for key in ("picture", "upsampler", "metric"))] = [*told, float(row["value"])]
    return found


def audit() -> Numbers:
    found: Numbers = {}
    for name in ("nearest", "lanczos3", "bilinear-corrected", "usu", "usu-iwmr-area"):
        report = usu.audit(usu.upsamplers.by_name(name), trials=5, climbs=1, seed=3)
        found[name] = [text for one in report.findings for text in (one.guarantee, one.declared, one.verdict)]
        # below its tolerance a violation is rounding
        found[f"{name} worst"] = [one.worst for one in report.findings if one.holds is False]
        found[f"{name} profile"] = [value for value in vars(report.profile).values() if value > 1e-9]
    return found


def prepared() -> Numbers:
    found: Numbers = {}
    pixels = np.rint(photograph() * 255).astype(np.uint8)
    for name, way in {
        "usual": {"crop": (24, 24), "resize": 30}, "whole": {"crop": (20, 30), "resize": None},
        "larger": {"crop": (60, 50), "resize": 50, "resample": "bicubic"},
    }.items():  # fmt: skip
        image, geometry = models.Preparation(**way)(pixels)
        found[f"{name} box"] = [*geometry.box, *geometry.picture, *geometry.input]
        placed = models.place(drawn(*geometry.input, seed=1), geometry, size=(40, 90))
        found[f"~{name}"], found[f"~{name} placed"] = image.flatten(0, 1), np.nan_to_num(placed, nan=-1.0)
    names = ("red fox, Vulpes vulpes", "grey fox", "fox squirrel", "tabby")
    found["classes"] = [models.resolve_target(text, names) for text in ("grey fox", "Vulpes vulpes", "squirrel", "3")]
    return found


ROOMS: dict[str, Callable[[], Numbers]] = {
    "operator": operator, "upsamplers": upsamplers, "segment": segment, "watershed": watershed, "score": score,
    "refine": refine, "sources": sources, "presets": presets, "explain": explain, "metrics": metrics,
    "statistics": statistics, "evaluate": evaluate, "audit": audit, "prepared": prepared,
}  # fmt: skip
