"""A vision transformer without the tokens of hidden patches: what is not there is not attended to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from usu.errors import UsuError, first_line
from usu.forward.calls import logits_of

_SOFTMAX: frozenset[Callable[..., Any]] = frozenset((torch.softmax, Tensor.softmax, functional.softmax))
_MULTI_HEAD = inspect.signature(functional.multi_head_attention_forward)
#: Rows whose numbers of tokens are in the same of so many parts of all go together.
_SIZES = 8
#: Outputs may differ by so much, relative to the largest of them, between dropping and masking.
_TOLERANCE = 1e-4


class TokenDrop(nn.Module):
    """A model whose pictures may have one channel more, which says what is there: 1 shown, 0 hidden.

    A patch of which nothing is shown has no token from the first block on, unless nothing of the picture is shown.
    Class and register tokens stay, and every token keeps its position embedding. Made by `usu.sources.token_drop`,
    which finds the blocks.

    Guarantees:
        Equal to masking the hidden tokens in every attention, so that nobody attends to them, and leaving them out of
        what the head reads; `check` measures it. Without the further channel it is the model itself.
    """

    def __init__(
        self, model: nn.Module, blocks: tuple[nn.Module, nn.Module], grid: tuple[int, ...], prefix: int, tokens: int,
        channels: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model, self.channels = model, channels
        self._ends = blocks  # the first and the last; in a tuple they are not registered a second time
        self._grid, self._prefix, self._tokens, self._sizes = grid, prefix, tokens, tokens

    def forward(self, pictures: Tensor) -> Any:
        """The model's output; (N, classes) where something may be hidden."""
        if pictures.shape[1] == self.channels:
            return self.model(pictures)
        return self._answers(pictures, self._drop, self._sizes)

    def check(self, picture: Tensor) -> None:
        """Compare with masking for this picture (C, H, W), of which every second patch is hidden, or fewer.

        Where only rows with equally many tokens give the same (a head that averages norms), rows are kept apart.

        Raises:
            UsuError: if the outputs differ, or the model cannot do without some of its tokens.
        """
        places = torch.arange(prod(self._grid), device=picture.device).reshape(self._grid)
        shown = (places // self._grid[1] + places % self._grid[1]) % 2
        there = functional.interpolate(shown[None, None].to(picture), picture.shape[1:])[0]
        more = there.clone()
        more[:, : picture.shape[1] // self._grid[0]] = 1  # all of the first row of patches
        batch = torch.stack([torch.cat([picture, there]), torch.cat([picture, more])])
        try:
            masked = self._answers(batch, self._mask, self._tokens)
            for sizes, later in ((1, _SIZES), (self._tokens, self._tokens)):  # together, and apart
                dropped = self._answers(batch, self._drop, sizes)
                off = float((dropped - masked).abs().max() / masked.abs().max())
                if off <= _TOLERANCE:
                    self._sizes = later
                    return
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise UsuError(f"The model cannot do without some of its tokens: {first_line(error)}") from error
        raise UsuError(
            f"Leaving out tokens is not the same as masking them in this model's attention: outputs differ by "
            f"{off:.0e}. It may have windows, or positions inside its blocks."
        )

    def _answers(self, pictures: Tensor, how: Callable[[Tensor], AbstractContextManager[None]], sizes: int) -> Tensor:
        """Rows with nearly as many tokens go together."""
        colours, there = pictures[:, : self.channels], pictures[:, self.channels :]
        shown = functional.adaptive_max_pool2d(there, self._grid).flatten(1) > 0
        shown[~shown.any(1)] = True
        kept = torch.ones(len(shown), self._tokens, dtype=torch.bool, device=shown.device)
        kept[:, self._prefix : self._prefix + shown.shape[1]] = shown
        size = sizes * kept.sum(1) // self._tokens
        rows, found = [], []
        for one in size.unique().tolist():
            which = (size == one).nonzero().flatten()
            with how(kept[which]):
                found.append(logits_of(self.model(colours[which])))
            rows.append(which)
        return torch.cat(found)[torch.cat(rows).argsort()]

    @contextmanager
    def _drop(self, kept: Tensor) -> Iterator[None]:
        """The first block gets the tokens that are kept, and in shorter rows a few more, which nobody attends to."""
        most = int(kept.sum(1).max())
        order = (~kept).byte().argsort(dim=1, stable=True)[:, :most]
        real = kept.gather(1, order)

        def before(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            def some(tokens: Any) -> Any:
                if not _are_tokens(tokens, kept):
                    return tokens
                return tokens.gather(1, order[..., None].expand(-1, -1, tokens.shape[2]))

            return tuple(map(some, args)), {name: some(one) for name, one in given.items()}

        with self._ends[0].register_forward_pre_hook(before, with_kwargs=True):
            if bool(real.all()):
                yield
            else:
                with self._ends[1].register_forward_hook(self._evened(order, real)), _Masked(real):
                    yield

    @contextmanager
    def _mask(self, kept: Tensor) -> Iterator[None]:
        """The same by the other way: all tokens go through the blocks, and the head gets those that are kept."""

        def some(tokens: Any) -> Any:
            return tokens[kept].reshape(len(kept), -1, tokens.shape[2]) if _are_tokens(tokens, kept) else tokens

        with self._ends[1].register_forward_hook(_first(some)), _Masked(kept):
            yield

    def _evened(self, order: Tensor, real: Tensor) -> Callable[[nn.Module, Any, Any], Any]:
        """A hook: tokens that are not there are the mean of the row's patches, so that a mean of all is theirs."""
        patch = (order >= self._prefix) & (order < self._prefix + prod(self._grid)) & real

        def even(tokens: Any) -> Any:
            if not _are_tokens(tokens, real):
                return tokens
            mean = (tokens * patch[..., None]).sum(1, keepdim=True) / patch.sum(1)[:, None, None]
            return torch.where(real[..., None], tokens, mean)

        return _first(even)


def _first(change: Callable[[Any], Any]) -> Callable[[nn.Module, Any, Any], Any]:
    """A forward hook that changes the output, or the first of several."""

    def after(_: nn.Module, args: Any, output: Any) -> Any:
        several = type(output) in (tuple, list)
        return type(output)([change(output[0]), *output[1:]]) if several else change(output)

    return after


def _are_tokens(value: Any, kept: Tensor) -> bool:
    return isinstance(value, Tensor) and value.ndim == 3 and value.shape[:2] == kept.shape


class _Masked(TorchFunctionMode):
    """Nobody attends to tokens that are not kept, whichever way a model calls attention."""

    def __init__(self, kept: Tensor) -> None:
        super().__init__()
        self.kept = kept

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, tokens = kwargs or {}, self.kept.shape[1]
        if func is functional.scaled_dot_product_attention and args[1].shape[-2] == tokens:
            query, key, value, *rest = args
            own, kept = rest.pop(0) if rest else given.get("attn_mask"), self.kept[:, None, None]
            if own is not None:  # the model's own, such as a bias of positions
                kept = own & kept if own.dtype == torch.bool else own.masked_fill(~kept, -torch.inf)
            return func(query, key, value, kept, *rest, **{k: v for k, v in given.items() if k != "attn_mask"})
        if func is functional.multi_head_attention_forward:
            call = _MULTI_HEAD.bind(*args, **given)
            if call.arguments["key"].shape[0] == tokens:
                call.arguments["key_padding_mask"] = ~self.kept
            return func(*call.args, **call.kwargs)
        if func in _SOFTMAX and args[0].ndim == 4 and args[0].shape[-1] == tokens:
            hidden = ~self.kept[:, None, None]
            return func(args[0].masked_fill(hidden, torch.finfo(args[0].dtype).min), *args[1:], **given)
        return func(*args, **given)
