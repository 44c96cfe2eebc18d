"""Pictures whose truth is known: what is bright, who is balanced, what a variant adds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from experiments.synthetic.shapes import BACKGROUND, CLASSES, DIM, SPLITS, VARIANTS, Pictures, shapes, split

SIZE = 64


@pytest.fixture(scope="module", params=VARIANTS)
def drawn(request: pytest.FixtureRequest) -> Pictures:
    return shapes(12, size=SIZE, variant=request.param)


def test_forms(drawn: Pictures) -> None:
    assert drawn.images.shape == (12, 1, SIZE, SIZE)
    assert (drawn.images.dtype, drawn.truths.dtype, drawn.labels.dtype) == (torch.float32, torch.bool, torch.int64)
    assert 0 <= float(drawn.images.min()) <= float(drawn.images.max()) <= 1
    assert drawn.labels.bincount().tolist() == [4, 4, 4]


def test_the_truth_is_the_brightest_thing(drawn: Pictures) -> None:
    for image, truth in zip(drawn.images[:, 0], drawn.truths, strict=True):
        assert 0.01 < float(truth.double().mean()) < 0.3
        assert float(image[truth].min()) > 0.65  # less than the noise below the darkest shape
        assert float(image[truth].mean()) > float(image[~truth].max()) - 0.1


def test_the_truth_has_its_class(drawn: Pictures) -> None:
    """Told by how much of its bounding box a shape fills: π/4, 1/2, 1, whatever its size and place."""
    for label, truth in zip(drawn.labels.tolist(), drawn.truths.numpy(), strict=True):
        rows, columns = np.nonzero(truth)
        box = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
        wanted = {"circle": np.pi / 4, "triangle": 0.5, "square": 1.0}[CLASSES[label]]
        assert truth.sum() / box == pytest.approx(wanted, abs=0.08)


def test_classes_share_their_areas() -> None:
    """The same random numbers draw shapes of the same area, so brightness alone does not tell the class."""
    area = shapes(300, size=SIZE).truths.double().mean((1, 2)).reshape(-1, 3).mean(0)
    assert float(area.max() / area.min()) < 1.05


def test_centred_shapes_are_centred_and_others_are_not() -> None:
    def centres(variant: str) -> np.ndarray:
        return np.array([np.argwhere(truth).mean(0) for truth in shapes(12, size=SIZE, variant=variant).truths.numpy()])

    assert np.abs(centres("centred") - (SIZE - 1) / 2).max() < 1
    assert np.ptp(centres("off-centre"), axis=0).min() > SIZE / 8


def test_shapes_lie_inside_the_picture() -> None:
    for variant in VARIANTS:
        truths = shapes(60, size=SIZE, variant=variant).truths
        assert not truths[:, [0, -1]].any()
        assert not truths[:, :, [0, -1]].any()


def test_sizes_vary_more_than_the_papers() -> None:
    spread = {
        variant: shapes(30, size=SIZE, variant=variant).truths.sum((1, 2)).double() for variant in ("sizes", "centred")
    }
    assert float(spread["sizes"].max() / spread["sizes"].min()) > 3
    assert float(spread["centred"].max() / spread["centred"].min()) < 2.2


def test_what_the_variants_put_outside_the_truth() -> None:
    def outside(variant: str) -> tuple[float, float]:
        """Share of the background brighter than any flat one, and its spread."""
        pictures = shapes(12, size=SIZE, variant=variant)
        values = [image[~truth] for image, truth in zip(pictures.images[:, 0], pictures.truths, strict=True)]
        bright = torch.cat(values) > (BACKGROUND[1] + DIM[0]) / 2
        return float(bright.double().mean()), float(torch.stack([v.std() for v in values]).mean())

    assert outside("centred")[0] == 0
    assert outside("two-objects")[0] > 0.02
    assert 0.005 < outside("distractors")[0] < outside("two-objects")[0]
    assert outside("textured")[1] > 2 * outside("centred")[1]


def test_a_picture_depends_on_seed_and_number_only() -> None:
    few, many, other = shapes(3, size=SIZE), shapes(9, size=SIZE), shapes(3, size=SIZE, seed=1)
    assert torch.equal(few.images, many.images[:3])
    assert not torch.equal(few.images, other.images)
    assert not torch.equal(many.images[0], many.images[3])  # of one class


def test_split() -> None:
    pictures = shapes(100, size=16)
    parts = split(pictures)
    assert tuple(len(part) / 100 for part in parts) == SPLITS
    assert [part.name for part in parts] == ["centred/train", "centred/validation", "centred/test"]
    together = torch.cat([part.images for part in parts])
    assert len(together.flatten(1).unique(dim=0)) == 100  # nobody twice, nobody lost
    for part in parts:
        for end in range(1, len(part) + 1):
            counts = part.labels[:end].bincount(minlength=3)
            assert int(counts.max() - counts.min()) <= 1
    assert not torch.equal(split(pictures, seed=1)[2].images, parts[2].images)


@pytest.mark.parametrize("count", [100, 200, 2000])
def test_split_of_other_counts(count: int) -> None:
    labels = torch.arange(count) % 3
    small = torch.zeros(count, 1, 1)
    parts = split(Pictures(small[:, None], small.bool(), labels, "x"))
    assert [len(part) for part in parts] == [round(count * 0.7), round(count * 0.15), round(count * 0.15)]
    for part in parts:
        assert int(part.labels.bincount().max() - part.labels.bincount().min()) <= 1


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"`variant` must .*; got 'round'"):
        shapes(3, variant="round")
    with pytest.raises(ValueError, match=r"`count` and `size` must .*; got 0 and 224"):
        shapes(0)
