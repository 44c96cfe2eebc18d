"""Defects a person could make, one line each: a sign, an off-by-one, a dropped normalisation, a skipped restore.

A text that the source no longer has is "gone": replace it by a defect of the same kind where the code went.
"""

# ruff: noqa: E501 (a defect reads best in one line)

from __future__ import annotations

from dataclasses import dataclass

#: The tests of a room, as globs, those that are quickest to find something first. The stored numbers of
#: `tests/laws/test_numbers.py` are left out: they see every change, and are written anew when a change is meant.
ROOMS: dict[str, tuple[str, ...]] = {
    "operator": (
        "tests/unit/test_redistribute.py", "tests/laws/test_operator_laws.py", "tests/unit/test_interpolate.py",
        "tests/unit/test_base.py", "tests/laws/test_interpolation_laws.py", "tests/laws/test_layer_laws.py",
        "src/usu/operator",
    ),
    "upsamplers": ("tests/unit/test_upsamplers.py", "tests/laws/test_audit_laws.py", "src/usu/upsamplers"),
    "forward": (
        "tests/unit/test_forward.py", "tests/unit/test_perturb.py", "tests/unit/test_undisturbed.py",
        "tests/unit/test_runtime.py", "src/usu/forward", "tests/integrations/test_onnx.py",
    ),
    "sources": (
        "tests/unit/test_gradcam.py", "tests/unit/test_sources_*.py", "tests/unit/test_layer_choice.py",
        "src/usu/sources", "tests/integrations/test_gradcam_*.py", "tests/integrations/test_sources_*.py",
    ),
    "segment": ("tests/unit/test_segment_*.py", "tests/laws/test_segment_laws.py", "src/usu/segment"),
    "score": (
        "tests/unit/test_score_*.py", "tests/unit/test_scorer.py", "tests/laws/test_score_laws.py",
        "tests/laws/test_posterior_laws.py", "tests/laws/test_round_laws.py", "tests/unit/test_spread.py",
        "src/usu/score",
    ),
    "refine": (
        "tests/unit/test_refine_*.py", "tests/laws/test_refine_laws.py", "tests/laws/test_round_laws.py",
        "src/usu/refine",
    ),
    "pipeline": (
        "tests/unit/test_pipeline*.py", "tests/unit/test_spread.py", "tests/unit/test_explain_empty.py",
        "tests/laws/test_pipeline_laws.py", "tests/laws/test_layer_laws.py", "src/usu/pipeline",
        "tests/unit/test_bad_input.py",
    ),
    "results": ("tests/unit/test_saving.py", "tests/unit/test_plot.py", "src/usu/results"),
    "metrics": ("tests/unit/metrics", "src/usu/metrics", "tests/laws/test_error_laws.py"),
    "stats": ("tests/unit/test_stats.py", "tests/unit/test_comparison.py", "tests/laws/test_stats_laws.py"),
    "auditor": ("tests/laws/test_audit_laws.py", "tests/unit/test_upsamplers.py", "src/usu/auditor"),
    "bench": ("tests/unit/bench", "src/usu/bench"),
    "models": ("tests/unit/test_pictures.py", "tests/unit/test_models.py", "src/usu/models"),
    "integrations": (
        "tests/integrations/test_arrays.py", "tests/integrations/test_captum_*.py",
        "tests/integrations/test_torchcam.py", "tests/integrations/test_pytorch_grad_cam*.py",
    ),
    "cli": ("tests/unit/test_cli.py", "tests/e2e/test_commands.py"),
}  # fmt: skip


@dataclass(frozen=True)
class Defect:
    """One text of a file below ``src/usu``, and what stands there instead."""

    room: str
    file: str
    old: str
    new: str
    what: str


def _in(room: str, file: str, *changes: tuple[str, str, str]) -> list[Defect]:
    return [Defect(room, file, old, new, what) for what, old, new in changes]


DEFECTS: tuple[Defect, ...] = (
    *_in(
        "operator", "operator/redistribute.py",
        ("flipped for positive mass", "below = self.mass.detach() < 0", "below = self.mass.detach() > 0"),
        ("scores not flipped for negative mass", "return 1 - self.scores if down else self.scores", "return self.scores"),
        ("what the ceiling took is given twice", "mass * left, 1.0", "mass, 1.0"),
        ("pixels without a prior are heard", "(prior > 0) != enough, -torch.inf", "(prior > 0) == enough, -torch.inf"),
        ("mixture the wrong way round", "(1 - hybrid.gamma) * mass + hybrid.gamma * led",
         "hybrid.gamma * mass + (1 - hybrid.gamma) * led"),
    ),
    *_in(
        "operator", "operator/budgets.py",
        ("budgets not normalised", "* (weight / norm.where(norm != 0, 1))", "* weight"),
    ),
    *_in(
        "operator", "operator/cells.py",
        ("derivative without the shares", "pulled = cells.total(gradient * weight)", "pulled = cells.total(gradient)"),
        ("all rows are the first ones", "work(*(field[:, some] for field in fields))",
         "work(*(field[:, : some.stop - some.start] for field in fields))"),
        ("only the first rows of a tall cell add up", "sums = reduce(torch.add, parts)", "sums = parts[0]"),
        ("maximum where the smallest counts", "-self._max_columns(-source.amin(2))", "self._max_columns(source.amax(2))"),
    ),
    *_in(
        "operator", "operator/budgets.py",
        ("one pixel too many is full", "rank < cells.spread(high)", "rank <= cells.spread(high)"),
    ),
    *_in(
        "operator", "operator/interpolate.py",
        ("half a pixel away", "(torch.arange(pixels, dtype=torch.float64) + 0.5) * scale",
         "torch.arange(pixels, dtype=torch.float64) * scale"),
        ("window one pixel short", "(i + radius + 1).clamp(max=n)", "(i + radius).clamp(max=n)"),
        ("negative places count as positive", "alone = -logs.exp()", "alone = logs.exp()"),
        ("signs cancel in the trace", "coarse.detach().abs().mean(spatial", "coarse.detach().mean(spatial"),
    ),
    *_in(
        "upsamplers", "upsamplers/filters.py",
        ("widths swapped", "-place / (2 * sigma_space**2) - colour / (2 * sigma_range**2)",
         "-place / (2 * sigma_range**2) - colour / (2 * sigma_space**2)"),
        ("sums, not means", "regions.spread(regions.total(smooth) / regions.sizes)",
         "regions.spread(regions.total(smooth))"),
        ("correction forgets the map", "even, base=pixels)", "even)"),
    ),
    *_in(
        "forward", "forward/calls.py",
        ("training mode not restored", "            module.training = True\n", "            module.training = False\n"),
        ("our hooks stay", "hooks.pop(key, None)", "hooks.get(key, None)"),
        ("odds against everybody, itself included", "others[:, index] = -torch.inf", "others[:, index] += 0"),
    ),
    *_in(
        "forward", "forward/engine.py",
        ("what was spent is not subtracted", "self.left = max(0, self.limit - self.spent)", "self.left = self.limit"),
        ("batches are not counted", "self.meter.count(size)", "self.meter.count(0)"),
    ),
    *_in(
        "forward", "forward/fills.py",
        ("keep and fill swapped", "torch.lerp(filled, image,", "torch.lerp(image, filled,"),
        ("variance over n - 1", "image.std(_places(image), keepdim=True, correction=0)", "image.std(_places(image), keepdim=True)"),
        ("kernel cut at one sigma", "round(4 * sigma)", "round(sigma)"),
    ),
    *_in(
        "sources", "sources/cams.py",
        ("weights not averaged", "gradient.flatten(2).mean(2), activation)", "gradient.flatten(2).sum(2), activation)"),
        ("negative gradients kept", "(gradient.relu() * activation)", "(gradient * activation)"),
        ("neighbours in the wrong order", "filled.index_select(dim, low).lerp(filled.index_select(dim, high), part)",
         "filled.index_select(dim, high).lerp(filled.index_select(dim, low), part)"),
        ("layer not told", "name, reason = found.layer, reason or found.reason", "reason = reason or found.reason"),
    ),
    *_in(
        "sources", "sources/attention.py",
        ("layers in the wrong order", "rollout = (matrix.mean(1) + identity) / 2 @ rollout",
         "rollout = rollout @ ((matrix.mean(1) + identity) / 2)"),
        ("class token as the first place", "[:, grid.prefix :]", "[:, : result.shape[-1] - grid.prefix]"),
    ),
    *_in(
        "sources", "sources/layers.py",
        ("as likely counts as likelier", "likelier = (rows > own)", "likelier = (rows >= own)"),
        ("model left in training mode", "with undisturbed(model), torch.inference_mode(False), torch.enable_grad():",
         "with torch.inference_mode(False), torch.enable_grad():"),
    ),
    *_in(
        "sources", "sources/recording.py",
        ("height and width swapped", "places.reshape(len(places), *self.size, -1)",
         "places.reshape(len(places), *self.size[::-1], -1)"),
    ),
    *_in(
        "segment", "segment/segmenter.py",
        ("joined where they touch least", "(border[p][other], -other)", "(-border[p][other], -other)"),
        ("blur darkens the border", 'mode="reflect") / weight)', 'mode="reflect"))'),
        ("one diagonal forgotten", "product((0, 1, -1), repeat=labels.ndim)", "product((0, 1), repeat=labels.ndim)"),
    ),
    *_in("segment", "segment/hierarchy.py", ("limit counted one short", "left -= born\n", "left -= born - 1\n")),
    *_in(
        "segment", "segment/tiles.py",
        ("of the wrong length", "round(side / length)", "round(length / side)"),
    ),
    *_in(
        "score", "score/delete.py",
        ("against the wrong picture", "- values[-1])", "- values[0])"),
    ),
    *_in(
        "score", "score/sampled.py",
        ("pairs are no complements", "u > 1 - probability", "u < 1 - probability"),
        ("sizes one short", "size = 1 + torch.multinomial(", "size = torch.multinomial("),
    ),
    *_in(
        "score", "score/sampled.py",
        ("degrees of freedom without the intercept", "freedom = rows - intercept - float(", "freedom = rows - float("),
        ("groups, not segments", "share = total / shown.shape[1]", "share = total / shown.shape[0]"),
    ),
    *_in(
        "score", "score/posterior.py",
        ("wrong sign of the volume", ".sum(1) + rows * ratio.log()", ".sum(1) - rows * ratio.log()"),
        ("certain of what nobody saw", "ratio / (self.w + ratio), 1.0)", "ratio / (self.w + ratio), 0.0)"),
    ),
    *_in(
        "score", "score/posterior.py",
        ("variances where deviations belong", "values.clamp(min=0).sqrt()[:, None]", "values.clamp(min=0)[:, None]"),
        ("shrunk twice", "(design @ posterior.stretched.T)", "(design @ posterior.mean.T)"),
        ("a longer run is as noisy", "w = times * w", "w = 1.0 * w"),
    ),
    *_in(
        "score", "score/posterior.py",
        ("no hierarchy", "density = (1 - part) * smooth + part * nested",
         "density = (1 - part) * smooth + part * torch.eye(len(area), dtype=torch.float64)"),
    ),
    *_in(
        "score", "score/groups.py",
        ("a round asks what was asked", "dice)[len(shown) :]", "dice)[:evaluations]"),
        ("the last round alone", "every, said = torch.cat([shown, groups[:end]]), torch.cat(values)",
         "every, said = groups[:end], torch.cat(values[-1:])"),
        ("the least undecided", "torch.minimum(part, 1 - part)", "torch.maximum(part, 1 - part)"),
    ),
    *_in(
        "score", "score/locality.py",
        ("one segment decides nothing", "minlength=len(mass)) > 1)", "minlength=len(mass)) > 0)"),
    ),
    *_in(
        "score", "score/gradient.py",
        ("sign", "(parts.image - parts.filled)", "(parts.filled - parts.image)"),
    ),
    *_in(
        "refine", "refine/fields.py",
        ("sums, not differences, along the diagonals", "h = h.narrow(axis, 0, n) - h.narrow(axis, 2, n)",
         "h = h.narrow(axis, 0, n) + h.narrow(axis, 2, n)"),
    ),
    *_in(
        "refine", "refine/fields.py",
        ("coarse where it should be fine", "(middle - field.abs()) / width", "(field.abs() - middle) / width"),
    ),
    *_in(
        "refine", "refine/loop.py",
        ("children of equal weight", "mean = (children * weight).sum(-1) / weight.sum()", "mean = children.mean(-1)"),
        ("everything is cut", "strengths(h, labels).numpy() if undecided is None", "strengths(h, labels).numpy() if True"),
        ("weakest first", "np.argsort(-strength[which]", "np.argsort(strength[which]"),
        ("ends when one target does", "(squares.sqrt() > tolerance).any()", "(squares.sqrt() > tolerance).all()"),
    ),
    *_in(
        "pipeline", "pipeline/halves.py",
        ("link of the layers kept for scores", "return replace(found.engine, link=asked.link), tuple(",
         "return replace(found.engine), tuple("),
        ("cells of all maps counted", "math.prod(coarse.shape[-inner_dims(cells) :])", "coarse.numel()"),
    ),
    *_in(
        "pipeline", "settings.py",
        ("area, not side", "math.sqrt(_ROOM * cells / self.segments)", "_ROOM * cells / self.segments"),
        ("groups, not pairs", "evaluations >= 2 * self.parts", "evaluations >= self.parts"),
    ),
    *_in(
        "pipeline", "pipeline/run.py",
        ("empty cells divided by themselves", "scale = wanted.abs().where(wanted.abs() > 1e-9 * mean, mean)",
         "scale = wanted.abs()"),
        ("signs cancel in the scale", "scale = flat.abs().sum(1", "scale = flat.sum(1"),
    ),
    *_in(
        "pipeline", "pipeline/certainty.py",
        ("recall, not IoU", "both / (2 * chosen[0].sum() - both)", "both / chosen[0].sum()"),
        ("compared with itself", "dtype=torch.bool), 1)]", "dtype=torch.bool))]"),
    ),
    *_in(
        "pipeline", "pipeline/run.py",
        ("smallest of the errors, not the largest", "mass_error=max(one.mass_error for one in done)",
         "mass_error=min(one.mass_error for one in done)"),
    ),
    *_in(
        "pipeline", "inputs.py",
        ("picture not shifted to zero", "((field - low) / (high - low)", "(field / (high - low)"),
    ),
    *_in(
        "results", "results/folder.py",
        ("damaged maps pass for whole", 'manifest.get("maps") == digest(', 'manifest.get("maps") != digest(b"") or digest('),
        ("draft left behind", "shutil.rmtree(draft, ignore_errors=True)", "draft.exists()"),
    ),
    *_in("metrics", "metrics/curves.py", ("ends not turned round", "ends[::-1] if insert else ends", "ends")),
    *_in(
        "metrics", "metrics/curves.py",
        ("middle pixel in one half", "place >= size - size // 2", "place >= size // 2"),
    ),
    *_in(
        "metrics", "metrics/infidelity.py",
        ("never at the last row", "torch.stack([size[0] - side + 1, size[1] - side + 1])",
         "torch.stack([size[0] - side, size[1] - side])"),
    ),
    *_in("metrics", "metrics/localization.py", ("recall, not IoU", "hits / (2 * area - hits)", "hits / area")),
    *_in(
        "metrics", "metrics/mass.py",
        ("deficit and excess swapped", "MassImbalance(back((-surplus).clamp(min=0)), back(surplus.clamp(min=0)))",
         "MassImbalance(back(surplus.clamp(min=0)), back((-surplus).clamp(min=0)))"),
    ),
    *_in("metrics", "metrics/mass.py", ("mass and density swapped", 'if coarse_is == "density" else 1)', 'if coarse_is == "mass" else 1)')),
    *_in(
        "metrics", "metrics/mass.py",
        ("jumps between segments", "(segment.diff(dim=axis) == 0)", "(segment.diff(dim=axis) != 0)"),
    ),
    *_in(
        "metrics", "metrics/curves.py",
        ("against the first group", "(values[:-1] - values[-1])", "(values[:-1] - values[0])"),
    ),
    *_in("metrics", "metrics/road.py", ("known pixels change, too", "solved, where=missing)", "solved)")),
    *_in("metrics", "metrics/catalogue.py", ("what was lent is not counted", "self.lent += self._made[key][1]", "self.lent += 0")),
    *_in("metrics", "metrics/quantus_compat.py", ("writes into the caller's image", ".flatten().clone()", ".flatten()")),
    *_in(
        "stats", "stats/signed_rank.py",
        ("the value itself left out", "float(chance[up:].sum())", "float(chance[up + 1 :].sum())"),
        ("interval one rank short", "Interval(float(averages[rank - 1])", "Interval(float(averages[rank])"),
    ),
    *_in(
        "stats", "stats/resampling.py",
        ("ties not halved", "+ same.mean() / 2", "+ same.mean() * 0"),
        ("sign of the acceleration", "u = left_out.mean() - left_out", "u = left_out - left_out.mean()"),
    ),
    *_in("stats", "stats/effects.py", ("one test too few", "(m - np.arange(len(values)))", "(m - 1 - np.arange(len(values)))")),
    *_in("stats", "stats/compare.py", ("lower counts as better everywhere", '-1 if better == "lower" else 1', "-1")),
    *_in("stats", "stats/effects.py", ("variance over n", "left.var(ddof=1) + right.var(ddof=1)", "left.var() + right.var()")),
    *_in(
        "auditor", "auditor/measures.py",
        ("right pairs are wrong", "(gap * step < -scale", "(gap * step > scale"),
        ("total of magnitudes", "abs(result.sum() - trial.masses.sum())", "abs(abs(result).sum() - trial.masses.sum())"),
    ),
    *_in(
        "bench", "bench/store.py",
        ("damage is believed", "if one[-1] == _checksum(one[:-1])", "if one"),
        ("anybody's file", "if not any(sign in start for sign in _SIGNS)", "if False"),
        ("two writers", 'self._lock.execute("BEGIN EXCLUSIVE")', 'self._lock.execute("BEGIN")'),
    ),
    *_in("bench", "bench/units.py", ("rows of another question", "if expected != known[key]:", "if False:")),
    *_in("bench", "bench/engines.py", ("a lost worker is the end", "except WorkerError as error:", "except KeyError as error:")),
    *_in(
        "bench", "bench/contenders.py",
        ("one shuffle for all pictures", 'seeded(scene.seed, "cells")', 'seeded(0, "cells")'),
        ("pass of the finer layers not counted", "found.evaluations + spent", "found.evaluations"),
    ),
    *_in("bench", "bench/scene.py", ("one evaluation too many", "left -= self.finer_evaluations", "left -= 0")),
    *_in("bench", "bench/datasets.py", ("classes from one", "int(classes[number][0]) - 1", "int(classes[number][0])")),
    *_in(
        "models", "models/pictures.py",
        ("rows and columns swapped", "box = (top * rows, left * columns,", "box = (left * rows, top * columns,"),
        ("not divided by the deviation", "((scaled - mean) / std)", "(scaled - mean)"),
    ),
    *_in(
        "integrations", "integrations/arrays.py",
        ("mass as density", "coarse = coarse / sizes.to(coarse)", "coarse = coarse * 1"),
        ("survival forgotten", "/ (len(keep) * kept)", "/ len(keep)"),
    ),
    *_in(
        "integrations", "integrations/_hooks.py",
        ("gradients not given back", "parameter.grad = gradient", "parameter.grad = None"),
        ("hooks not put back", "if key in ours or key in now", "if key in now"),
    ),
    *_in("integrations", "integrations/captum.py", ("mean of the channels", "attribution.sum(1)", "attribution.mean(1)")),
    *_in("integrations", "integrations/_layered.py", ("sum, not mean", '(len(maps) if how == "mean" else 1)', "1")),
    *_in(
        "cli", "cli/explain.py",
        ("codes swapped", "typer.Exit(1 if done else 2)", "typer.Exit(2 if done else 1)"),
        ("another request's answer", 'known.get("request") == asked and ', ""),
    ),
    *_in("cli", "cli/run.py", ("depth not passed on", '"temperature": temperature, "depth": depth, "evaluations"', '"temperature": temperature, "evaluations"')),
)  # fmt: skip
