"""What everybody needs who calls a model: it is left as it was found (`undisturbed`), and its output is read."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from usu import _checks as check

#: One lock for every layer, so that models that share layers wait for each other too.
_LOCKS: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()


class undisturbed:  # noqa: N801 (a context manager, called like a function)
    """Evaluation mode inside, with the model's lock held; training flags as before afterwards, and none of our hooks.

    The flags are set one by one, because `Module.train` may be overridden. Ctrl-C may come at any moment: it is raised
    where the model can still be put right. What is no module is left alone.

    >>> net = nn.Dropout().train()
    >>> with undisturbed(net):
    ...     net.training
    False
    >>> net.training
    True
    """

    def __init__(self, model: object) -> None:
        self._modules = list(model.modules()) if isinstance(model, nn.Module) else []
        self._training: list[nn.Module] = []
        self._held: list[Any] = []
        self._handler: Any = None
        self._interrupted = False

    def __enter__(self) -> None:
        try:
            # Python tells signals to the main thread only
            if threading.current_thread() is threading.main_thread():
                handler = signal.getsignal(signal.SIGINT)
                if handler is signal.default_int_handler:
                    self._handler = handler
                    signal.signal(signal.SIGINT, self._interrupt)
            # in one order for everybody, so that nobody waits for one who waits for them
            for module in sorted(self._modules, key=id):
                lock = _LOCKS.setdefault(module, threading.RLock())
                while not lock.acquire(timeout=0.1):
                    self._raise_pending()
                self._held.append(lock)
            self._training = [module for module in self._modules if module.training]
            for module in self._training:
                module.training = False
            self._raise_pending()
        except BaseException:
            self._restore()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()
        self._raise_pending()

    def _restore(self) -> None:
        for module in self._training:
            module.training = True
        for module in self._modules:
            for hooks in filter(None, (module._forward_hooks, module._forward_pre_hooks)):
                for key in [key for key, hook in hooks.items() if _ours(hook)]:
                    hooks.pop(key, None)
        while self._held:
            self._held.pop().release()
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            self._handler = None

    def _raise_pending(self) -> None:
        if self._interrupted:
            self._interrupted = False
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-C while a model is put right is kept until that is done."""
        while frame is not None:
            if frame.f_code in _CRITICAL:
                self._interrupted = True
                return
            frame = frame.f_back
        raise KeyboardInterrupt


_CRITICAL = {undisturbed.__enter__.__code__, undisturbed.__exit__.__code__, undisturbed._restore.__code__}


def _ours(hook: object) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("usu.")


#: A class, several classes, a function of the raw output giving (N,) or (N, T), or None: the model's own top class.
Target: TypeAlias = int | Sequence[int] | Callable[[Any], Tensor] | None
#: What is measured of a class: one of these, or a column of a function of the logits.
Link: TypeAlias = Literal["logit", "log_probability", "probability", "log_odds"] | Callable[[Tensor], Tensor]

LINKS = ("logit", "log_probability", "probability", "log_odds")


def logits_of(output: object) -> Tensor:
    """The (N, classes) tensor inside a model's output: itself, its ``logits``, or the first one in it.

    >>> logits_of({"hidden": torch.zeros(2, 8), "logits": torch.ones(2, 3)}).shape
    torch.Size([2, 3])
    """
    found = _find(output)
    if found is None:
        raise TypeError(
            f"`model` must return a tensor, a tuple, a dictionary or a ModelOutput holding one; got "
            f"{type(output).__name__}. Wrap the model, or pass a callable `target` that reads its output."
        )
    if found.ndim == 1:
        return found[:, None]
    if found.ndim > 2 and found[0, 0].numel() == 1:
        return found.flatten(1)
    if found.ndim != 2:
        raise ValueError(
            f"`model` must return one row of class values per picture, N x classes; got {check.shape(found)}. "
            "Pass a callable `target` that reduces the output to one number per picture."
        )
    return found


def _find(output: object) -> Tensor | None:
    if isinstance(output, Tensor):
        return output
    if isinstance(output, np.ndarray):
        return torch.as_tensor(output)
    # a ModelOutput is a dictionary too, with its logits under the same name
    if isinstance(output, Mapping):
        if "logits" in output:
            return _find(output["logits"])
        output = list(output.values())
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return logits
    if isinstance(output, (tuple, list)):
        return next((_find(value) for value in output if isinstance(value, (Tensor, np.ndarray))), None)
    return None


def checked_target(target: Target) -> tuple[int, ...] | Callable[[Any], Tensor] | None:
    """Targets as a tuple of class indices, a callable, or None."""
    if target is None or callable(target):
        return target
    if isinstance(target, (Tensor, np.ndarray)):
        target = target.tolist()
    many = list(target) if isinstance(target, Sequence) and not isinstance(target, str) else [target]
    if not many:
        raise ValueError("`target` must name at least one class; got an empty list. Pass None for the top class.")
    for index in many:
        if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
            got = type(index).__name__
            raise TypeError(f"`target` must be a class index, a list of them, a callable or None; got {got}.")
        if index < 0:
            raise ValueError(f"`target` must be a class index of at least 0; got {index}.")
    return tuple(int(index) for index in many)


def checked_link(link: Link, target: object = None) -> Link:
    """A link that is known, and asked for where there are logits."""
    if not callable(link):
        check.choice("link", link, LINKS)
    if link != "logit" and callable(target):
        raise ValueError(
            "`link` must be 'logit' with a callable `target`, which reads the raw output; got "
            f"{link!r}. Apply it inside the callable."
        )
    return link


def convolution_dims(model: object) -> int | None:
    """How many dimensions a model's input has besides channels: those of its first convolution; None without one.

    >>> convolution_dims(nn.Sequential(nn.ReLU(), nn.Conv3d(1, 2, 3)))
    3
    """
    for module in model.modules() if isinstance(model, nn.Module) else ():
        # TorchScript keeps the name alone
        kinds = {getattr(module, "original_name", ""), *(kind.__name__ for kind in type(module).__mro__)}
        for dims in (1, 2, 3):
            if f"Conv{dims}d" in kinds:
                return dims
    return None


def top_class(output: object) -> int:
    """The class with the largest value in the first row."""
    return int(logits_of(output)[0].argmax())


def read(output: object, target: tuple[int, ...] | Callable[[Any], Tensor], link: Link, rows: int) -> Tensor:
    """(rows, T) values in float64: the targets' columns of link(logits), or what a callable target makes of them.

    >>> read(torch.tensor([[0.0, 0.0, 5.0]]), (0, 2), "logit", 1)
    tensor([[0., 5.]], dtype=torch.float64)
    """
    if callable(target):
        return _columns("target", target(output), rows).double()
    logits = logits_of(output)
    classes = logits.shape[1]
    if max(target) >= classes:
        raise ValueError(
            f"`target` must be a class index from 0 to {classes - 1}, because the model has {classes} classes; got "
            f"{max(target)}."
        )
    if callable(link):
        logits = _columns("link", link(logits), rows)
        if logits.shape[1] != classes:
            raise ValueError(
                f"`link` must keep one column per class ({classes}); got {check.shape(logits)}. "
                "For a single number per picture pass it as a callable `target`."
            )
    elif link == "log_odds":
        return _columns("model", log_odds(logits, target), rows)
    elif link != "logit":
        logits = logits.double().log_softmax(1)
        logits = logits.exp() if link == "probability" else logits
    return _columns("model", logits[:, list(target)], rows).double()


def log_odds(logits: Tensor, target: tuple[int, ...]) -> Tensor:
    """log p / (1 - p) of each target, (N, T): its logit less the log-sum-exp of all others; of a single output itself.

    >>> log_odds(torch.tensor([[2.0, 2.0, 2.0]]), (0,)).round(decimals=3)  # -log 2
    tensor([[-0.6930]], dtype=torch.float64)
    """
    values = logits.double()
    if values.shape[1] == 1:  # a sigmoid's
        return values[:, list(target)]
    columns = []
    for index in target:
        others = values.clone()
        others[:, index] = -torch.inf
        columns.append(values[:, index] - others.logsumexp(1))
    return torch.stack(columns, 1)


def _columns(name: str, values: object, rows: int) -> Tensor:
    """(N,) or (N, T) -> (N, T), with as many rows as there were pictures."""
    found = torch.as_tensor(values) if isinstance(values, (Tensor, np.ndarray)) else None
    if found is not None and found.ndim == 1:
        found = found[:, None]
    if found is None or found.ndim != 2 or len(found) != rows:
        got = type(values).__name__ if found is None else check.shape(found)
        raise ValueError(f"`{name}` must return one row per picture; got {got} for {rows} pictures.")
    return found
