"""``make demo``: two real photographs explained by a real ImageNet network, on this machine, in one go."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from PIL import Image
from skimage import data

PICTURES = ("chelsea", "coffee")  # shipped with scikit-image: a cat and a cup


def usu(*arguments: str) -> None:
    """The command, as a person would type it."""
    print(f"\n$ usu {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "usu.cli", *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    """Write the pictures, run the commands, name the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo/out"))
    out: Path = parser.parse_args().out
    pictures = out / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        Image.fromarray(getattr(data, name)()).save(pictures / f"{name}.png")

    usu("explain", str(pictures), "--engine", "auto", "--out", str(out / "explained"))
    figure = out / "compare_chelsea.png"
    figure.unlink(missing_ok=True)
    usu("compare", str(pictures / "chelsea.png"), "--out", str(figure))

    print("\nLook at:")
    for name in PICTURES:
        print(f"  {out / 'explained' / name / 'panel.png'}    picture, coarse map, bilinear, USU, segments, scores")
        print(f"  {out / 'explained' / name / 'overlay.png'}  the map over the photograph")
    print(f"  {figure}   every upsampler side by side, with what it does to mass")
    print("\nNext: `.venv/bin/usu explain YOUR_PICTURE.jpg`, `.venv/bin/usu audit`, `.venv/bin/usu --help`")


if __name__ == "__main__":
    main()
