"""The public contract: these names, these parameters, each with a docstring whose example runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Callable
from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest

import usu
from tests.contracts.source import library

#: Fixed by the contract. A default of ``ANY`` is left open; ``**more``: further settings may follow, by keyword only.
ANY = "any default"
CONTRACT = f"""
def redistribute(
    coarse, scores, *, cells=None, temperature=0.1, potential=None, budget="cell", base=None, signed="flip",
    coarse_is="density", max_gain=None
): ...
def interpolate(coarse, size, mode={ANY!r}): ...
def upsample(coarse, image, model, target=None, *, preset=None, evaluations=None, **more): ...
def explain(model, image, target=None, *, source="gradcam", layer=None, **more): ...
def audit(upsampler, **more): ...
def heterogeneity(scores, kind={ANY!r}): ...
def boundary_segments(h, segments, threshold): ...
def mixing(h, center={ANY!r}, temperature={ANY!r}): ...
def merge(coarse_scores, fine_scores, alpha): ...
def alpha_beta_errors(pixel_map, truth): ...
def mass_imbalance(pixel_map, truth, cells): ...
def SoftIWMR(temperature=0.1, prior="area", importance="max"): ...
def Hybrid(gamma={ANY!r}, soft={ANY!r}): ...
"""
WANTED: dict[str, Callable[..., Any]] = {}
exec(CONTRACT, WANTED)
WANTED = {name: stub for name, stub in WANTED.items() if inspect.isfunction(stub)}


def differences(stub: Callable[..., Any], real: Callable[..., Any]) -> list[str]:
    """Where the signature of ``real`` departs from the contract's."""
    wanted, found = (dict(inspect.signature(function).parameters) for function in (stub, real))
    open_ended = wanted.pop("more", None) is not None
    problems = [f"`{name}` is missing" for name in wanted if name not in found]
    for name, parameter in wanted.items():
        if name not in found:
            continue
        if found[name].kind is not parameter.kind:
            problems.append(f"`{name}` must be {parameter.kind.description}, is {found[name].kind.description}")
        if parameter.default != found[name].default and parameter.default != ANY:
            problems.append(f"the default of `{name}` must be {parameter.default!r}, is {found[name].default!r}")
    positional = [name for name, p in wanted.items() if p.kind is not p.KEYWORD_ONLY]
    if list(found)[: len(positional)] != positional:
        problems.append(f"the first parameters must be {positional}, are {list(found)[: len(positional)]}")
    for name, parameter in found.items():
        if name not in wanted and not (open_ended and parameter.kind is parameter.KEYWORD_ONLY):
            problems.append(f"`{name}` is not in the contract")
    return problems


@pytest.mark.parametrize("name", WANTED)
def test_the_contract_is_kept(name: str) -> None:
    assert differences(WANTED[name], getattr(usu, name)) == []


def test_a_planted_departure_is_seen() -> None:
    wanted = WANTED["redistribute"]
    assert differences(wanted, wanted) == []
    assert differences(wanted, lambda coarse, scores: None)[0] == "`cells` is missing"
    merge = WANTED["merge"]
    assert differences(merge, lambda fine_scores, coarse_scores, alpha: None) == [
        "the first parameters must be ['coarse_scores', 'fine_scores', 'alpha'], "
        "are ['fine_scores', 'coarse_scores', 'alpha']"
    ]
    assert differences(merge, lambda coarse_scores, fine_scores, alpha=0.5: None) == [
        "the default of `alpha` must be <class 'inspect._empty'>, is 0.5"
    ]
    assert differences(merge, lambda coarse_scores, fine_scores, *, alpha: None)[0] == (
        "`alpha` must be positional or keyword, is keyword-only"
    )
    assert differences(merge, lambda coarse_scores, fine_scores, alpha, *, more=1: None) == [
        "`more` is not in the contract"
    ]
    assert differences(WANTED["audit"], lambda upsampler, *, trials=3: None) == []
    assert differences(WANTED["audit"], lambda upsampler, trials=3: None) == ["`trials` is not in the contract"]


def test_results_carry_what_the_contract_says() -> None:
    wanted = {"pixel_map", "scores", "segments", "evaluations", "stop_reason", "mass_error", "seconds"}
    assert wanted <= {field.name for field in fields(usu.Upsampled)}
    assert callable(usu.Explanation.save)
    assert callable(usu.Explanation.figure)
    assert set(usu.PRESETS) >= {"paper", "fast", "cell", "soft"}
    assert all(callable(getattr(usu.potentials, name)) for name in ("tensor", "power", "log_odds"))
    assert isinstance(usu.segment, ModuleType)
    assert isinstance(usu.score, ModuleType)


#: Every module but the one that runs when it is imported.
MODULES = {m.name: importlib.import_module(m.name) for m in library() if not m.name.endswith("__main__")}
EXPORTING = {name: module for name, module in MODULES.items() if hasattr(module, "__all__")}


@pytest.mark.parametrize("name", EXPORTING)
def test_exports_exist_in_order(name: str) -> None:
    module = EXPORTING[name]
    exported = list(module.__all__)
    assert len(set(exported)) == len(exported)
    assert [one for one in exported if not hasattr(module, one)] == []
    # constants, classes, the rest: the order ruff keeps
    assert exported == sorted(exported, key=lambda one: (not one.isupper(), not one[0].isupper(), one))


def documented() -> dict[str, Any]:
    """Every function and class that a module of the library defines without an underscore, and their methods."""
    found: dict[str, Any] = {}
    for home, module in MODULES.items():
        for name, value in vars(module).items():
            if name.startswith("_") or getattr(value, "__module__", None) != home:
                continue
            if inspect.isclass(value) or inspect.isfunction(value):
                found[f"{home}.{name}"] = value
            if inspect.isclass(value):
                for inner, method in vars(value).items():
                    if not inner.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
                        found[f"{home}.{name}.{inner}"] = method
    return found


def undocumented(things: dict[str, Any]) -> list[str]:
    """Those without a text of their own; a dataclass writes its signature where the text is missing."""
    return [
        name
        for name, thing in things.items()
        if not (thing.__doc__ or "").strip() or (thing.__doc__ or "").startswith(f"{name.rpartition('.')[2]}(")
    ]


def test_everything_public_says_what_it_is() -> None:
    things = documented()
    assert {"usu.operator.redistribute.redistribute", "usu.auditor.report.AuditReport.figure"} <= set(things)
    assert undocumented(things) == []


def test_a_missing_docstring_is_seen() -> None:
    class Named:
        """Named(x: int)"""

    assert undocumented({"a.silent": lambda: None, "b.Named": Named, "c.good": documented}) == ["a.silent", "b.Named"]


#: Exported functions whose docstring has no example, and why.
FUNCTIONS = [name for name in usu.__all__ if inspect.isfunction(getattr(usu, name, None))]


def failures(function: Callable[..., Any]) -> int | None:
    """How many lines of the docstring's example fail; None if it has none."""
    scope = vars(inspect.getmodule(function)).copy()
    tests = [
        t for t in doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs=scope) if t.examples
    ]
    runner = doctest.DocTestRunner(verbose=False)
    for test in tests:
        runner.run(test, out=lambda text: None)
    return runner.failures if tests else None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_example_runs(name: str) -> None:
    assert failures(getattr(usu, name)) == 0


def test_a_wrong_example_is_seen() -> None:
    def two() -> int:
        """Two.

        >>> 1 + 1
        3
        """
        return 2

    assert failures(two) == 1
    assert failures(failures) is None
