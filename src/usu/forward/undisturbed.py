"""A model in evaluation mode for a while, by one thread at a time, and afterwards as it was found."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

#: One lock for every layer, so that models that share layers wait for each other too.
_LOCKS: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()


class undisturbed:  # noqa: N801 (a context manager, called like a function)
    """Evaluation mode inside, with the model's lock held; training flags as before afterwards, and none of our hooks.

    The flags are set one by one: `Module.train` may be overridden to do more than set a flag, such as merge weights.
    Ctrl-C may come at any moment: it is raised where the model can still be put right. What is no module is left alone.
    """

    def __init__(self, model: object) -> None:
        self._modules = list(model.modules()) if isinstance(model, nn.Module) else []
        self._training: list[nn.Module] = []
        self._held: list[Any] = []
        self._interrupts = _Interrupts()

    def __enter__(self) -> None:
        try:
            self._interrupts.take_over()
            # in one order for everybody, so that nobody waits for one who waits for them
            for module in sorted(set(self._modules), key=id):
                lock = _LOCKS.setdefault(module, threading.RLock())
                while not lock.acquire(timeout=0.1):
                    self._interrupts.raise_pending()
                self._held.append(lock)
            self._training = [module for module in self._modules if module.training]
            for module in self._training:
                module.training = False
            self._interrupts.raise_pending()
        except BaseException:
            self._restore()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()
        self._interrupts.raise_pending()

    def _restore(self) -> None:
        for module in self._training:
            module.training = True
        for module in self._modules:
            for hooks in (module._forward_hooks, module._forward_pre_hooks):
                for key in [key for key, hook in hooks.items() if _ours(hook)]:
                    hooks.pop(key, None)
        while self._held:
            self._held.pop().release()
        self._interrupts.give_back()


class _Interrupts:
    """Ctrl-C while a model is put right is kept until that is done. Python tells signals to the main thread only."""

    def __init__(self) -> None:
        self._before: Any = None
        self._pending = False

    def take_over(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.default_int_handler
            signal.signal(signal.SIGINT, self._handle)

    def give_back(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def raise_pending(self) -> None:
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code in _CRITICAL:
                self._pending = True
                return
            frame = frame.f_back
        raise KeyboardInterrupt


_CRITICAL = {undisturbed.__enter__.__code__, undisturbed.__exit__.__code__, undisturbed._restore.__code__}


def _ours(hook: object) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("usu.")
