"""``usu doctor``: what is installed, what is missing and what it would be good for."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

import typer

from usu.cli import run

#: Extra -> (distribution, what it is for).
EXTRAS = {
    "demo": ("efficientnet_lite_pytorch", "the embedded ImageNet network"),
    "plot": ("matplotlib", "figures and overlays"),
    "onnx": ("onnxruntime", "scoring with ONNX models"),
    "higra": ("higra", "hierarchical watershed segments"),
    "pytorch-grad-cam": ("grad-cam", "maps of pytorch-grad-cam"),
    "captum": ("captum", "maps of Captum"),
    "torchcam": ("torchcam", "maps of torchcam"),
    "timm": ("timm", "models by timm name"),
    "transformers": ("transformers", "models from a transformers folder"),
    "app": ("starlette", "the page of usu app"),
    "bench": ("pyarrow", "tables of usu evaluate in Parquet, and as DataFrames"),
    "quantus": ("quantus", "evaluation with Quantus"),
}
REQUIRED = ("torch", "numpy", "scipy", "scikit-image", "Pillow", "typer", "rich")

#: What only a running torch can tell, asked of another process: a torch that is broken is a line of the report.
_PROBE = """
import json, os, sys
import torch
devices = {"cpu": f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"}
for index in range(torch.cuda.device_count()):
    devices[f"cuda:{index}"] = torch.cuda.get_device_name(index)
if torch.backends.mps.is_available():
    devices["mps"] = "available"
found = {"devices": devices, "torchvision": None}
try:
    from usu.models import load
    loaded = load()
    with torch.no_grad():
        outputs = loaded.model(torch.zeros(1, 3, 224, 224))
    found["embedded network"] = f"{loaded.name}, {outputs.shape[1]} classes"
except Exception as error:
    found["embedded network"] = f"not usable: {error}"
try:
    import torchvision
except ModuleNotFoundError:
    pass
except (ImportError, RuntimeError, OSError) as error:
    found["torchvision"] = str(error).splitlines()[0]
print(json.dumps(found))
"""


def doctor(as_json: run.Json = False) -> None:
    """Show the environment: versions, devices, extras, and whether the embedded network runs."""
    told = _told()
    torchvision = _version("torchvision") or "not installed; only needed for torchvision and timm models"
    if told["torchvision"] is not None:
        why = told["torchvision"]
        torchvision += f", BROKEN beside this torch ({why}). Install the build that matches torch."
    found: dict[str, Any] = {
        "usu-xai": _version("usu-xai"),
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        "required": {name: _version(name) for name in REQUIRED},
        "devices": told["devices"],
        "extras": {name: {"version": _version(package), "for": use} for name, (package, use) in EXTRAS.items()},
        "torchvision": torchvision,
        "embedded network": told["embedded network"],
    }
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    rows = {name: found[name] for name in ("usu-xai", "python")}
    rows |= {name: version or "MISSING" for name, version in found["required"].items()}
    rows |= {f"device {name}": state for name, state in found["devices"].items()}
    for name, extra in found["extras"].items():
        missing = f"not installed; for {extra['for']}: pip install 'usu-xai[{name}]'"
        rows[f"extra {name}"] = extra["version"] or missing
    rows |= {name: found[name] for name in ("torchvision", "embedded network")}
    width = max(map(len, rows))
    for name, state in rows.items():
        run.tell(f"{name:<{width}}  {state}")


def _told() -> dict[str, Any]:
    """What the other process says, or why it says nothing."""
    probe = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False)
    if probe.returncode == 0:
        told: dict[str, Any] = json.loads(probe.stdout.splitlines()[-1])
        return told
    reason = (probe.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return {"devices": {}, "torchvision": None, "embedded network": f"not usable: torch does not run here ({reason})"}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
