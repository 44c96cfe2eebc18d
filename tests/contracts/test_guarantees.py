"""What docs/guarantees.md and pyproject.toml promise is what is tested."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_is_there() -> None:
    named = re.findall(r"`([\w/]*\.py)?(?:::(\w+))?`", PAGE)
    named = [(file, test) for file, test in named if test or file.rpartition("/")[2].startswith("test_")]
    assert len(named) > 15
    latest = ""
    for file, test in named:
        latest = file or latest
        texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob(latest)]
        assert any(f"def {test}" in text for text in texts), (latest, test)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib")
def test_the_lowest_versions_are_the_ones_that_are_tried() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(n): Version(v) for n, v in (li.split("==") for li in lines if li and li[0] != "#")}
    extras = (one for name in ("bench", "plot", "higra") for one in project["optional-dependencies"][name])
    for requirement in map(Requirement, [*project["dependencies"], *extras]):
        if requirement.name == project["name"]:
            continue
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        assert pins[canonicalize_name(requirement.name)] == Version(bound.version), requirement.name
