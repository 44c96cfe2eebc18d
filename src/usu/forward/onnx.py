"""ONNX Runtime sessions as ordinary callables on batches."""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usu.errors import MissingExtraError

_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX Runtime session as a function batch (N, C, H, W) -> the output called "logits", or the first one.

    An export with a fixed batch size is fed in pieces of that size, the last one filled up with repeated pictures.
    """

    session: Any
    input: str
    output: str
    dtype: Any
    #: Pictures per pass of a fixed export; None where any number will do.
    batch: int | None
    #: Passes at a time, each in a thread of its own.
    workers: int = 1
    #: Where it was read from.
    path: Path | None = None

    def fingerprint(self) -> str | None:
        """Of the file, and of the files it keeps its weights in, as large exports do; None for a session without."""
        if self.path is None:
            return None
        found = hashlib.sha256(f"{self.input} {self.output}".encode())
        content = self.path.read_bytes()
        found.update(content)
        for file in [self.path.parent / name for name in sorted(set(_external(content)))]:
            found.update(file.read_bytes() if file.is_file() else b"")
        return found.hexdigest()[:16]

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process reads the file itself; a session is known to this one alone."""
        if self.path is None:
            raise TypeError("`model` must be read from a file to be sent to another process; got a session.")
        return from_onnx, (self.path,)

    def __call__(self, batch: Tensor) -> Tensor:
        """The output as a tensor on the CPU."""
        return torch.cat(list(self.outputs(batch.split(self.piece(len(batch))))))

    def piece(self, pictures: int) -> int:
        """How many of so many pictures to pass at a time: a worker's share, but no less than a fixed export takes."""
        return max(self.batch or 1, -(-pictures // self.workers))

    def outputs(self, batches: Iterable[Tensor]) -> Iterator[Tensor]:
        """The output of each, in order; the next ones are made and on their way while one is waited for."""
        if self.workers == 1:
            yield from map(self._run, batches)
            return
        waiting: deque[Future[Tensor]] = deque()
        with ThreadPoolExecutor(self.workers) as pool:
            for batch in batches:
                waiting.append(pool.submit(self._run, batch))
                if len(waiting) > self.workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()

    def _run(self, batch: Tensor) -> Tensor:
        pictures = np.ascontiguousarray(batch.detach().cpu().numpy(), dtype=self.dtype)
        size = self.batch or len(pictures)
        parts = []
        for start in range(0, len(pictures), size):
            part = pictures[start : start + size]
            missing = size - len(part)
            whole = np.concatenate([part, np.repeat(part[-1:], missing, 0)]) if missing else part
            parts.append(self.session.run([self.output], {self.input: whole})[0][: len(part)])
        return torch.from_numpy(np.concatenate(parts))


def from_onnx(model: str | Path | Any) -> OnnxModel:
    """A model from an ``.onnx`` file or an existing ``onnxruntime.InferenceSession``.

    A file is asked about as many batches at a time as torch has threads at this moment, each in one thread; a session
    is asked as it is. Needs the extra ``onnx``. The result goes wherever a model goes.

    >>> from_onnx("no-such-net.onnx")
    Traceback (most recent call last):
    FileNotFoundError: `model` must be an .onnx file; got 'no-such-net.onnx', which is no file.
    """
    workers, path = 1, Path(model).resolve() if isinstance(model, (str, Path)) else None
    if isinstance(model, (str, Path)):
        if not Path(model).is_file():
            raise FileNotFoundError(f"`model` must be an .onnx file; got {str(model)!r}, which is no file.")
        try:
            import onnxruntime
        except ImportError:
            raise MissingExtraError("onnxruntime", "onnx", "Running an ONNX model") from None
        workers = torch.get_num_threads()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # what fails raises; a second voice on standard error helps nobody
        model = onnxruntime.InferenceSession(str(model), options, providers=onnxruntime.get_available_providers())
    if not hasattr(model, "get_inputs"):
        raise TypeError(f"`model` must be a path or an onnxruntime.InferenceSession; got {type(model).__name__}.")
    inputs, outputs = model.get_inputs(), [output.name for output in model.get_outputs()]
    if len(inputs) != 1 or inputs[0].type not in _DTYPES:
        described = ", ".join(f"{i.name}: {i.type}" for i in inputs)
        raise ValueError(f"`model` must take one picture batch of floating-point numbers; got ({described}).")
    size = inputs[0].shape[0] if inputs[0].shape else None
    output, batch = "logits" if "logits" in outputs else outputs[0], size if isinstance(size, int) else None
    return OnnxModel(model, inputs[0].name, output, _DTYPES[inputs[0].type], batch, workers, path)


def _external(content: bytes) -> Iterator[str]:
    """Where tensors outside of an export lie: what its protobuf has under the key "location"."""
    for entry in re.finditer(rb"\x0a\x08location\x12([\x80-\xff]*[\x00-\x7f])", content):
        length = sum((byte & 127) << 7 * place for place, byte in enumerate(entry[1]))
        yield content[entry.end() : entry.end() + length].decode(errors="replace")
