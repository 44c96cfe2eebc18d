"""Datasets as they are distributed, made small."""

from __future__ import annotations

import io
import pickle
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from usu.bench.datasets import cifar10, cub, folder, spread, tar
from usu.errors import UnreadablePictureError
from usu.models import Loaded
from usu.models.pictures import Geometry

DICE = np.random.default_rng(0)


def whole(pixels):
    size = (pixels.shape[0], pixels.shape[1])
    return torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255, Geometry.whole(size, size)


LOADED = Loaded("mine", lambda batch: batch, whole)


def as_python_2(data, labels):
    """The official batches were pickled by Python 2, whose texts are bytes."""
    raw = data.tobytes()
    return (
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01K"
        + bytes([len(data)])
        + b"M\x00\x0c\x86cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNN"
        + 2 * b"J\xff\xff\xff\xff"
        + b"K\x00tb\x89T"
        + len(raw).to_bytes(4, "little")
        + raw
        + b"tbU\x06labels]("
        + b"".join(b"K" + bytes([label]) for label in labels)
        + b"eu."
    )


def picture(path, size=(10, 12)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(DICE.integers(0, 255, (*size, 3), dtype=np.uint8)).save(path)
    return path


def test_a_folder_with_labels_and_boxes(tmp_path):
    for name in ("a", "b"):
        picture(tmp_path / "images" / f"{name}.png")
    (tmp_path / "labels.csv").write_text("file,class,x,y,width,height\na.png,3,2,1,4,5\n")
    one, two = folder(tmp_path, truth="boxes")
    assert (one.name, one.target, two.target, two.truth) == ("a", 3, None, None)
    sample = one.open(LOADED)
    assert sample.truth is not None
    assert sample.truth.sum() == 20
    assert sample.truth[1:6, 2:6].all()
    assert folder(tmp_path)[0].truth is None
    (tmp_path / "labels.csv").write_text("name\na.png\n")
    with pytest.raises(ValueError, match="column named file"):
        folder(tmp_path)


def test_a_folder_with_outlines(tmp_path):
    picture(tmp_path / "a.png")
    picture(tmp_path / "masks" / "a.png")
    assert folder(tmp_path, truth="masks")[0].truth == tmp_path / "masks" / "a.png"
    (tmp_path / "masks" / "a.png").rename(tmp_path / "masks" / "z.png")
    with pytest.raises(ValueError, match="named like a picture, as a"):
        folder(tmp_path, truth="masks")


def test_the_pictures_of_an_archive_are_those_of_the_folder(tmp_path):
    paths = [picture(tmp_path / "pictures" / f"{name}.png") for name in "ba"]
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for path in paths:
            archive.add(path, path.name)
        archive.addfile(tarfile.TarInfo("notes.txt"))
    packed, plain = tar(tmp_path / "all.tar"), folder(tmp_path / "pictures")
    assert [one.name for one in packed] == ["a.png", "b.png"]
    for one, other in zip(packed, plain, strict=True):
        assert torch.equal(one.open(LOADED).image, other.open(LOADED).image)
        assert one.digest(LOADED) == other.digest(LOADED)
    with tarfile.open(tmp_path / "small.tar.gz", "w:gz") as archive:
        archive.add(paths[0], "a.png")
    with pytest.raises(ValueError, match="not compressed"):
        tar(tmp_path / "small.tar.gz")


@pytest.mark.parametrize("layout", ["bin", "py"])
def test_cifar10_in_both_layouts(tmp_path, layout):
    data, labels = DICE.integers(0, 255, (5, 3072), dtype=np.uint8), [3, 8, 8, 0, 6]
    home = tmp_path / f"cifar-10-batches-{layout}"
    home.mkdir()
    if layout == "bin":
        rows = b"".join(bytes([label]) + row.tobytes() for label, row in zip(labels, data, strict=True))
        (home / "test_batch.bin").write_bytes(rows)
    else:
        (home / "test_batch").write_bytes(as_python_2(data, labels))
    found = cifar10(tmp_path)
    assert [one.target for one in found] == labels
    for one, row in zip(found, data, strict=True):
        np.testing.assert_array_equal((one.open(LOADED).image * 255).round().numpy().ravel(), row)
    with pytest.raises(FileNotFoundError, match="data_batch_1"):
        cifar10(tmp_path, split="train")


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return print, ("pwned",)

    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": Evil(), b"labels": []}))
    with pytest.raises(ValueError, match=r"names builtins\.print"):
        cifar10(tmp_path)


@pytest.mark.parametrize("truth", ["boxes", "masks"])
def test_cub_with_boxes_and_masks(tmp_path, truth):
    home = tmp_path / "CUB_200_2011"
    files = ["002.Laysan/Laysan_1.jpg", "001.Black/Black_1.jpg", "001.Black/Black_2.jpg"]
    for file in files:
        picture(home / "images" / file)
        picture(home / "segmentations" / file.replace(".jpg", ".png"))
    lines = {
        "images.txt": files, "image_class_labels.txt": [2, 1, 1], "train_test_split.txt": [0, 0, 1],
        "bounding_boxes.txt": ["2.0 1.0 4.0 5.0"] * 3,
    }  # fmt: skip
    for name, column in lines.items():
        (home / name).write_text("".join(f"{number} {one}\n" for number, one in enumerate(column, 1)))
    found = cub(tmp_path, truth=truth)
    assert [(one.name, one.target) for one in found] == [("Black_1", 0), ("Laysan_1", 1)], "tests, from class 0"
    sample = found[0].open(LOADED)
    assert sample.truth is not None
    assert (sample.truth.sum() == 20) == (truth == "boxes")
    assert len(cub(tmp_path, split="all")) == 3
    (home / "images.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"images\.txt"):
        cub(tmp_path)


def test_another_box_is_another_picture(tmp_path):
    picture(tmp_path / "a.png")
    digests = set()
    for width in (4, 5):
        (tmp_path / "labels.csv").write_text(f"file,x,y,width,height\na.png,2,1,{width},5\n")
        digests.add(folder(tmp_path, truth="boxes")[0].digest(LOADED))
    assert len(digests) == 2


def test_a_damaged_picture_of_an_archive_is_told(tmp_path):
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        member = tarfile.TarInfo("a.png")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"junk"))
    with pytest.raises(UnreadablePictureError):
        tar(tmp_path / "all.tar")[0].open(LOADED)


def test_those_of_a_limit_are_among_those_of_its_double():
    for count in range(1, 60):
        assert set(spread(range(count), 7)) <= set(spread(range(count), 14))
        assert len(spread(range(count), 7)) == min(7, count)
