"""The controlled study from pictures to tables and figures.

Run: python -m experiments.synthetic [--quick] [--out DIR]

Weights and rows are kept in DIR as they come: a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from experiments.synthetic import additive, figures, identical, tables
from experiments.synthetic.choice import choice
from experiments.synthetic.coarse import GRIDS, coarse_maps
from experiments.synthetic.demonstrations import nine, shown, striking
from experiments.synthetic.infidelity import infidelities
from experiments.synthetic.measures import embedded, measured, of_grid
from experiments.synthetic.methods import GROUPS, INTERPOLATIONS, methods, studied
from experiments.synthetic.panels import save
from experiments.synthetic.patterns import patterns
from experiments.synthetic.shapes import VARIANTS, Pictures, shapes, split
from experiments.synthetic.sweep import sweep
from experiments.synthetic.training import STRENGTH, Trained, evaluated, trained
from rich.console import Console
from rich.progress import Progress

from usu.bench import Table
from usu.forward.digest import versions


@dataclass(frozen=True)
class Study:
    """Everything that decides the numbers."""

    name: str = "synthetic"
    size: int = 224
    count: int = 2000
    seed: int = 0
    grids: tuple[int, ...] = GRIDS
    #: None: what `training` says.
    epochs_cnn: int | None = None
    epochs_mlp: int | None = None
    #: Pictures of the test split that are measured on the RRL models' gradients; and on everything else.
    tested: int = 60
    tested_others: int = 30
    #: And of the contest on `CONTESTED`: those after the ones that every method is measured on.
    contested: int = 270
    #: Of the RRL models' infidelity.
    unfaithful: int = 12
    variants: tuple[str, ...] = VARIANTS[1:]
    #: Half the side is a quarter of the training's time.
    variant_size: int = 112
    #: Validation pictures on which the scores were chosen.
    chosen: int = 12
    #: Of the sweep over readings of the penalty: side, pictures, epochs of the CNN and of the MLP.
    sweep: tuple[int, int, int, int] = (56, 600, 12, 40)
    #: Of every sampled score.
    evaluations: int = 300
    candidates: int = identical.CANDIDATES
    resamples: int = 10_000
    trials: int = 25
    #: Photographs of scikit-image for the embedded network.
    photographs: tuple[str, ...] = ("chelsea", "coffee", "astronaut", "rocket")


FULL = Study()
#: Everything in small: a machine of two cores needs minutes.
QUICK = Study(
    name="synthetic-quick", size=56, count=600, epochs_cnn=12, epochs_mlp=40, tested=9, tested_others=5, contested=30,
    unfaithful=3, chosen=3, variants=("sizes",), variant_size=56, sweep=(32, 150, 4, 10), evaluations=120,
    candidates=400, photographs=("chelsea",),
)  # fmt: skip
#: What the vanilla models and the variants are measured with.
FEW = ("interpolations", "redistributions", "oracles", "rivals")
#: Shapes in the middle like the paper's, of several sizes: a peak in the middle of a cell can miss a small one, so here
#: the pointing game can be lost. Both RRL models are trained on it.
CONTESTED = "sizes"


def models(study: Study, out: Path) -> tuple[dict[str, Trained], dict[str, Pictures], list[dict[str, Any]]]:
    """Every model by its name, the test pictures of its kind, and a record of how well it does."""
    found, tests, records = {}, {}, []
    epochs = {"cnn": study.epochs_cnn, "mlp": study.epochs_mlp}
    plan = [("centred", kind, regularised) for kind in ("cnn", "mlp") for regularised in (False, True)]
    for variant in study.variants:
        plan += [(variant, kind, True) for kind in (("cnn", "mlp") if variant == CONTESTED else ("cnn",))]
    for variant, kind, regularised in plan:
        size = study.size if variant == "centred" else study.variant_size
        train, validation, test = split(shapes(study.count, size=size, variant=variant, seed=study.seed))
        made = trained(
            kind, regularised, train, validation, folder=out / "models", seed=study.seed, epochs=epochs[kind]
        )
        plain = made.record["name"]
        name = plain if variant == "centred" else f"{plain}/{variant}"
        found[name], tests[name] = made, test
        settings = {key: made.record["settings"][key] for key in ("epochs", "strength", "normalisation", "warmup")}
        own = {f"test_{key}": value for key, value in evaluated(made.model, test).items()}
        records.append({"model": name, **own, **settings, "seconds": made.record["seconds"]})
    return found, tests, records


def readings(study: Study, out: Path) -> list[dict[str, Any]]:
    """The penalty's readings and strengths on small pictures; and the paper's strength at twice the side, because a
    reading may depend on the resolution.
    """
    side, count, *epochs = study.sweep
    plan = [(kind, side, count, many, {}) for kind, many in zip(("cnn", "mlp"), epochs, strict=True)]
    printed: dict[str, Any] = {"strengths": [STRENGTH], "normalisations": ["sum", "share"]}
    plan += [(kind, 2 * side, count, many, printed) for kind, _, _, many, _ in plan]
    return [
        row
        for kind, size, pictures, many, others in plan
        for row in sweep(kind, size=size, count=pictures, epochs=many, folder=out / "models", seed=study.seed, **others)
    ]


def rows_of(
    study: Study, out: Path, name: str, source: str, made: Trained, pictures: Pictures, *, contest: bool = False
) -> Table:
    """One model's numbers: every method on the RRL models' gradients, few of them elsewhere.

    In a ``contest`` the paper's methods meet the interpolations, nobody else does, on more pictures.
    """
    whole = name in tables.PAPER_FULL and source == "gradient"
    count = study.contested if contest else study.tested if whole else study.tested_others
    start = study.tested_others if contest else 0
    pictures = pictures.pick(slice(start, start + count))
    coarse = {
        grid: coarse_maps(made.model, pictures.images, pictures.labels, grid, source=source) for grid in study.grids
    }
    contenders = methods(GROUPS if whole else FEW, evaluations=study.evaluations)
    if contest:
        contenders = [one for one in contenders if one.name in (*INTERPOLATIONS, *tables.CONTESTING)]
    label = f"{name}-{'contest' if contest else source}".replace("/", "-")
    with bar(label) as progress:
        table = measured(
            made.model, pictures, coarse, contenders, out=out / "journal" / label,
            seed=study.seed, progress=progress,
        )  # fmt: skip
    (out / "rows").mkdir(exist_ok=True)
    (out / "rows" / f"{label}.csv").write_text(table.csv(), encoding="utf-8")
    return table


def draw(
    found: dict[str, Trained],
    tests: dict[str, Pictures],
    rows: Table,
    twins: list[identical.Twins],
    examples: list[figures.Shown],
    out: Path,
) -> None:
    """All figures."""
    model, test = found["rrl-cnn"].model, tests["rrl-cnn"]
    triangle = int((test.labels == 1).nonzero()[0])
    example, result = shown("RRL-CNN", model, test, triangle)
    save(figures.upsampling_errors(example), out, "upsampling-errors")
    save(figures.refinement(example.picture, example.coarse, result, studied("usu")), out, "refinement")
    save(figures.error_types(*striking(rows, model, test)), out, "error-types")
    save(figures.qualitative(examples), out, "qualitative")
    save(figures.identical(twins[0]), out, "identical")


def run(study: Study, out: Path) -> None:
    """Everything, in the order of the page."""
    out.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    start = time.perf_counter()

    def done(step: str) -> None:
        seconds[step] = round(time.perf_counter() - start - sum(seconds.values()), 1)
        print(f"{step}: {seconds[step]:.0f} s", flush=True)

    found, tests, quality = models(study, out)
    tables.write_csv(quality, out / "models.csv")
    done("models")
    tables.write_csv(readings(study, out), out / "sweep.csv")
    done("sweep")
    _, validation, _ = split(shapes(study.count, size=study.size, seed=study.seed))
    regular = {name: found[name].model for name in tables.PAPER_FULL}
    tables.write_csv(choice(regular, validation.pick(slice(study.chosen)), study.grids), out / "choice.csv")
    done("choice")
    measurements = {
        (name, source): rows_of(study, out, name, source, made, tests[name])
        for name, made in found.items()
        for source in (("gradient", "gradcam") if name == "rrl-cnn" else ("gradient",))
    }
    contests = {
        name: rows_of(study, out, name, "gradient", found[name], tests[name], contest=True)
        for name in found
        if name.endswith(f"/{CONTESTED}")
    }
    done("rows")
    shape = [
        one
        for key, table in measurements.items()
        for one in tables.shape_records(*key, table, study.grids, resamples=study.resamples)
    ]
    tables.write_csv(shape, out / "shapes.csv")
    own = {name: measurements[name, "gradient"] for name in tables.PAPER_FULL}
    claims = tables.claim_records(own | contests, study.grids, resamples=study.resamples)
    tables.write_csv(claims, out / "claims.csv")
    against = tables.claim_records(
        own, study.grids, claiming=tables.CONTESTING, rivals=tables.RIVALS, resamples=study.resamples
    )
    tables.write_csv(against, out / "rivals.csv")
    unfaithful = infidelities(regular, tests["rrl-cnn"].pick(slice(study.unfaithful)), seed=study.seed)
    tables.write_csv(unfaithful, out / "infidelity.csv")
    middle = of_grid(measurements["rrl-cnn", "gradient"], study.grids[1])
    side = f"{study.grids[1]} x {study.grids[1]}"
    desiderata = tables.desiderata_records(f"rrl-cnn, gradient, {side}", middle, trials=study.trials)
    photographs = embedded(study.photographs, evaluations=study.evaluations)
    if photographs is not None:
        desiderata += tables.desiderata_records("embedded, Grad-CAM, 7 x 7", photographs, trials=study.trials)
    tables.write_csv(desiderata, out / "desiderata.csv")
    few = shapes(study.tested_others, size=study.size, seed=study.seed)
    tables.write_csv(tables.additive_records(additive.bounds(few, grids=study.grids)), out / "additive.csv")
    done("tables")
    twins = identical.search(size=study.size, grid=study.grids[0], candidates=study.candidates, seed=study.seed)
    tables.write_csv(
        [record for number, one in enumerate(twins) for record in one.records(number)], out / "identical.csv"
    )
    done("identical")
    if not twins:
        raise RuntimeError(f"no distinct truths with one bilinear map were found among {study.candidates} candidates")
    examples = nine(found["rrl-cnn"].model, found["rrl-mlp"].model, tests["rrl-cnn"])
    names = patterns(size=study.size)
    tables.write_csv(tables.pattern_records(one for one in examples if one.name in names), out / "patterns.csv")
    draw(found, tests, middle, twins, examples, out / "figures")
    done("figures")
    trained_for = sum(float(made.record["seconds"]) for made in found.values())
    about = {
        "study": asdict(study), "command": sys.orig_argv[1:], "versions": versions(),
        # of this call, which may have found much of it done; and of the trainings, whenever they were
        "seconds": seconds, "training_seconds": round(trained_for, 1),
    }  # fmt: skip
    (out / "run.json").write_text(json.dumps(about | {"threads": torch.get_num_threads()}, indent=2) + "\n")


@contextmanager
def bar(label: str) -> Iterator[Any]:
    """Rows done and to do, on a terminal; nothing elsewhere."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(label, total=None)
        yield lambda name, done, total: progress.update(
            task, completed=done, total=total, description=f"{label} {name}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.synthetic", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="everything in small")
    parser.add_argument("--out", type=Path, help="default: results/synthetic, or results/synthetic-quick")
    asked = parser.parse_args()
    study = QUICK if asked.quick else FULL
    run(study, asked.out or Path("results") / study.name)


if __name__ == "__main__":
    main()
