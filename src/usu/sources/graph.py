"""Questions about the graph that autograd keeps: what a tensor was made of, and what is the output all but in name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch import Tensor

#: Nodes of the graph that leave an output what it is.
_COPIES = ("Clone", "Alias", "Upsample", "Sigmoid", "Softmax", "LogSoftmax", "Permute", "Transpose", "View", "ToCopy")
#: Those that work on each place by itself: what is behind them is the output again, before its last linear map.
_POINTWISE = (
    *_COPIES, "Relu", "Gelu", "Silu", "Hardswish", "Hardtanh", "LeakyRelu", "Elu", "Tanh", "NativeDropout",
    "NativeBatchNorm", "CudnnBatchNorm", "NativeGroupNorm", "NativeLayerNorm", "Addmm", "Mm", "UnsafeView", "T",
)  # fmt: skip


def upstream(
    start: Iterable[Any], stop: Collection[Any] = (), only: tuple[str, ...] = ("",), *, rows: bool = False
) -> set[Any]:
    """Nodes of the graph met on the way back from ``start``, not beyond ``stop`` and names that are not in ``only``.

    ``rows``: of a product of matrices only the left one is followed, whose rows are those of the product.
    """
    found: set[Any] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.add(node)
            if node not in stop and (node.name().startswith(only) or ("Mm" in only and _one_by_one(node))):
                parents = [parent for parent, _ in node.next_functions]
                if rows and node.name().startswith(("Bmm", "ScaledDot", "Baddbmm")):
                    parents = parents[1:2] if node.name().startswith("Baddbmm") else parents[:1]
                waiting += parents
    return found


def _one_by_one(node: Any) -> bool:
    """Whether a node is a convolution of single places."""
    return node.name().startswith("Convolution") and all(side == 1 for side in node._saved_weight.shape[2:])


def tensors_of(output: object) -> list[Tensor]:
    """An output itself, or those in a tuple, a list or a dictionary (a ModelOutput)."""
    values = output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else ()
    return [output] if isinstance(output, Tensor) else [one for one in values if isinstance(one, Tensor)]


def output_nodes(output: object, score: Tensor) -> tuple[set[Any], set[Any]]:
    """Nodes that make an output over the picture which the score reads, and of what that is a copy of (upsampled).

    A layer that ends there explains nothing: it is what the target is made of. Nor does one from which only pointwise
    steps lead there, the second set: its map is the output's own.
    """
    tensors = tensors_of(output)
    ends = {one.grad_fn for one in tensors}
    read = upstream([score.grad_fn], ends)
    spatial = {one.grad_fn for one in tensors if one.ndim > 2 and one[0, 0].numel() > 1}
    return upstream(read & spatial, only=_COPIES), upstream(read & spatial, only=_POINTWISE)


def is_embedding(tensor: Tensor) -> bool:
    """Whether the picture went through one layer at most."""
    nodes = upstream([tensor.grad_fn])
    return len([node for node in nodes if node.name().startswith(("Convolution", "Addmm", "Mm", "Bmm"))]) <= 1
