"""The site builds without a warning, knows every public name, and needs nothing from elsewhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from inspect import isclass, isroutine
from pathlib import Path

import pytest

import usu
from tests.contracts.source import ROOT

ROOMS = ("segment", "score", "forward", "metrics", "stats", "upsamplers", "models", "plot")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    pytest.importorskip("furo")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", f"{out}.trees"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(out)], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return out


def test_every_public_name_has_an_entry(site: Path) -> None:
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        known = {name for kind in InventoryFile.load(file, "", lambda a, b: b).values() for name in kind}
    assert len(known) > 300
    missing = [name for name in usu.__all__ if name != "__version__" and f"usu.{name}" not in known]
    homes = {"fills": "usu.forward.fills", "potentials": "usu.operator.potentials"}
    assert [name for name in missing if homes.get(name) not in known] == []
    for room in ROOMS:
        module = importlib.import_module(f"usu.{room}")
        public = [name for name in module.__all__ if isroutine(getattr(module, name)) or isclass(getattr(module, name))]
        assert [name for name in public if f"usu.{room}.{name}" not in known] == [], room


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Scripts, styles, fonts and pictures; the search, too, works without a network."""
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"', page.read_text(encoding="utf-8"))
        assert loaded == [], page
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert "redistribut" in index
    assert "<math" in (site / "theory.html").read_text(encoding="utf-8")


def test_links_within_the_site_have_their_places(site: Path) -> None:
    places = {page: set(re.findall(r'id="([^"]+)"', page.read_text(encoding="utf-8"))) for page in site.rglob("*.html")}
    lost = []
    for page in places:
        for target in re.findall(r'<a [^>]*href="([^"]*)"', page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, place = target.partition("#")
            goal = (page.parent / path).resolve() if path else page
            if not goal.exists() or (place and goal in places and place not in places[goal]):
                lost.append((page.name, target))
    assert lost == []
