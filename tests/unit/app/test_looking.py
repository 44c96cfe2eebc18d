"""What the page shows is what `usu.explain` returns, as far as the order of sums allows; nobody is asked twice."""

from __future__ import annotations

import io
import json
import logging
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import usu
from tests.unit.app.served import Client, glass, picture, read_frame, served
from usu.app import export
from usu.app.looking import Explained, Glass, Opened, field_now, probabilities
from usu.app.turns import Question, RefusedError
from usu.app.views import WAYS, Look, desiderata, frame, masses
from usu.app.visitors import Limits, Visitors
from usu.auditor import TOLERANCE
from usu.models.pictures import decode
from usu.pipeline import scores_of

SETTINGS = replace(usu.PRESETS["soft"], ceiling=160, per_segment=0)


def further() -> bool:
    return False


def opened(what: Glass | None = None) -> tuple[Glass, Opened]:
    found = what or glass()
    return found, found.opened(decode(picture()))


def sharpened(settings: usu.Settings = SETTINGS) -> tuple[Glass, Opened, Explained, list[Explained]]:
    seen, (asked, one) = list[Explained](), opened()
    known = asked.sharpened(one, asked.begun(one, 2), settings, further, seen.append)
    return asked, one, known, seen


def near(found: torch.Tensor, wanted: np.ndarray) -> bool:
    """Alike to 1e-4 of the largest: a batch in another memory order is added up in another order."""
    return float(np.abs(found.numpy() - wanted).max()) < 1e-4 * float(np.abs(wanted).max())


def test_the_map_is_that_of_explain() -> None:
    asked, one, known, seen = sharpened()
    result = usu.explain(
        asked.loaded.model, one.image, 2, preset=replace(SETTINGS, evaluations=known.evaluations), picture=one.view
    )
    assert near(Look("usu", "soft", SETTINGS.temperature).of(known), result.pixel_map)
    assert known.stability == pytest.approx(result.upsampled.stability, abs=0.02)
    assert [look.evaluations for look in seen][:3] == [24, 48, 60]
    assert one.passes.count == known.evaluations + 1


def test_a_look_has_the_field_that_scores_of_makes() -> None:
    asked, _, known, _ = sharpened()
    engine = usu.forward.engine(asked.loaded.model, 2, link=SETTINGS.link, limit=60)
    settings = replace(SETTINGS, evaluations=60)
    scored = scores_of(known.given, engine, settings, finer=known.finer)
    assert scored.effects is not None
    assert torch.equal(field_now(scored.effects, scored.segments[-1], known.given, settings), scored.field)


def test_another_class_is_served_by_the_same_passes() -> None:
    asked, one, known, _ = sharpened()
    before = one.passes.count
    other = asked.sharpened(
        one, asked.begun(one, 4), replace(SETTINGS, evaluations=one.sampled), further, lambda look: None
    )
    assert one.passes.count == before
    assert other.evaluations == known.evaluations
    assert not torch.equal(Look().of(other), Look().of(known))


def test_stop_makes_an_answer_of_what_there_is() -> None:
    asked, one = opened()

    known = asked.sharpened(one, asked.begun(one, 2), SETTINGS, lambda: one.passes.count > 60, lambda look: None)
    assert known.finished
    assert known.scored is not None
    assert known.scored.stop_reason is usu.refine.StopReason.STOPPED
    assert known.evaluations == 60  # a chunk of pictures this small
    assert one.passes.count == 61
    result = usu.explain(
        asked.loaded.model, one.image, 2, preset=replace(SETTINGS, evaluations=known.evaluations), picture=one.view
    )
    assert near(Look("usu", "soft", SETTINGS.temperature).of(known), result.pixel_map)


@pytest.mark.parametrize("budget", ["cell", "hybrid", "soft"])
@pytest.mark.parametrize("temperature", [0.05, 0.3, 2.0])
def test_what_a_budget_promises_is_measured(budget: str, temperature: float) -> None:
    _, _, known, _ = sharpened(replace(SETTINGS, ceiling=48))
    view = Look("usu", budget, temperature)
    found = masses(known, view.of(known))
    assert found["mass"] < 1e-10
    assert (found["D1"] < 1e-10) == (budget == "cell")


@pytest.mark.parametrize("way", WAYS)
def test_every_way_keeps_what_it_promises(way: str) -> None:
    _, _, known, _ = sharpened(replace(SETTINGS, ceiling=48))
    view = Look(way)
    turns = []
    found = desiderata(known, view, lambda: bool(turns.append(1)))
    assert turns, "others may go between two maps"
    assert set(found) == {"D1", "mass", "D2", "D3", "D4"}
    broken = [name for name in view.promised if name in found and found[name] > TOLERANCE[name]]  # type: ignore[index]
    assert broken == []


def test_without_everything_the_model_sees_the_fill() -> None:
    asked, one = opened()
    keep = torch.zeros(one.image.shape[-2:], dtype=torch.bool)
    logits, view = asked.without(one, keep)
    with torch.no_grad():
        wanted = asked.loaded.model(usu.fills.filled(one.image, "blur")[None])[0]
    assert torch.allclose(logits, wanted, atol=1e-6)
    assert view.shape == (*keep.shape, 3)
    assert float(probabilities(torch.zeros(4)).sum()) == pytest.approx(1)
    assert one.passes.count == 2


def test_what_is_taken_away_is_what_is_shown(tmp_path: Path) -> None:
    asked, one, known, _ = sharpened(replace(SETTINGS, ceiling=48))
    view = Look("usu", "cell", 0.2)
    with np.load(io.BytesIO(export.arrays(known, view))) as found:
        assert np.array_equal(found["pixel_map"], view.of(known).numpy())
        assert {"coarse", "scores", "segments_0", "effects", "effects_stderr", "stderr"} <= set(found)
    zipfile.ZipFile(io.BytesIO(export.folder(asked, one, known, view))).extractall(tmp_path)
    manifest = json.loads((tmp_path / "result" / "manifest.json").read_text())
    assert manifest["evaluations"] == known.evaluations
    assert manifest["mass_error"] < 1e-10


def test_wire_keeps_sixteen_bits_of_every_range() -> None:
    values = np.random.default_rng(0).normal(size=(5, 7)) * 1e-9
    _, header, arrays = read_frame(
        frame("a", {"x": float("nan")}, {"v": values, "n": np.arange(70000), "b": np.zeros(3)})
    )
    assert np.abs(arrays["v"] - values).max() <= np.ptp(values) / 65535
    assert header == {"x": None}
    assert arrays["n"].tolist() == list(range(70000))
    assert arrays["b"].tolist() == [0, 0, 0]


def test_visitors_are_forgotten() -> None:
    now, gone = [0.0], list[Question]()
    visitors = Visitors(Limits(visitors=2, idle=1, pictures=1), gone.append, lambda: now[0])
    one, two = visitors.welcome(None), visitors.welcome(None)
    assert visitors.welcome(one.key) is one
    one.asking["explain"] = two.asking["explain"] = Question("", 1, short=True)
    with pytest.raises(RefusedError, match="too many visitors"):
        visitors.welcome(None)
    for _ in range(3):
        visitors.keep(one, opened()[1])
    assert len(one.pictures) == 1
    now[0] = 61
    assert visitors.welcome(None) not in (one, two)
    assert len(gone) == 2
    with pytest.raises(RefusedError, match="Nobody knows you"):
        visitors.visitor(one.key)


def test_a_question_leaves_one_line_without_the_picture(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "usu.app"), served() as (port, _):
        client = Client(port).visit()
        about = client.open(picture())
        frames = client.explain(about, 1).frames
    assert [kind for kind, _, _ in frames] == ["first", "look", "done"]
    opened_, explained = (json.loads(record.message) for record in caplog.records)
    assert opened_["question"] == "open"
    assert {"target": 1, "evaluations": 48, "outcome": "answered", "pixels": [48, 40]}.items() <= explained.items()
    assert about["id"] not in caplog.text
    assert all(value not in caplog.text for value in client.cookies.values())
