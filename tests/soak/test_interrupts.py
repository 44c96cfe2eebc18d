"""Ctrl-C at random moments of `usu.explain`: the model is as it was."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import usu
from tests.chosen import chosen
from tests.small_nets import Tower, seeded

INTERRUPTS = 300
IMAGE = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(4))
SOFT = chosen("soft", parts=9)


def state(net: nn.Module) -> list[object]:
    own = [net.training, *(module.training for module in net.modules())]
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in net.modules()]
    grads = [p.grad is None for p in net.parameters()] + [p.requires_grad for p in net.parameters()]
    return [own, hooks, grads, [tensor.tolist() for tensor in net.state_dict().values()]]


@pytest.fixture
def _interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.soak
@pytest.mark.usefixtures("_interruptible")
def test_after_an_interrupt_the_model_is_as_it_was() -> None:
    dice, net = random.Random(0), seeded(Tower)
    net.train()
    net.norm.eval()
    explained = lambda: usu.explain(net, IMAGE, 1, preset=SOFT, evaluations=12)  # noqa: E731
    start = time.perf_counter()
    alone = explained().pixel_map
    start = time.perf_counter()
    explained()
    whole, before, raised, tries = time.perf_counter() - start, state(net), 0, 0
    while raised < INTERRUPTS:
        tries += 1
        assert tries < 4 * INTERRUPTS, "interrupts never come in the middle"
        bell = threading.Timer(dice.uniform(0, whole), os.kill, (os.getpid(), signal.SIGINT))
        try:
            bell.start()
            explained()
            bell.join()  # late ones come here
            time.sleep(0.001)
        except KeyboardInterrupt:
            raised += 1
        bell.cancel()
        bell.join()
        assert state(net) == before, tries
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, tries
    assert (explained().pixel_map == alone).all()
