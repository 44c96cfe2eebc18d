"""The model is as it was: after threads, interrupts and exceptions at any moment."""

from __future__ import annotations

import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

import usu
from tests.chosen import chosen
from tests.small_nets import Tower, seeded
from usu.forward import undisturbed

IMAGES = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(4))


def modes(net: nn.Module) -> list[bool]:
    return [module.training for module in net.modules()]


def hooks(net: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules())


@pytest.fixture
def tower() -> Tower:
    net = seeded(Tower)
    net.train()
    net.norm.eval()
    return net


def test_four_threads_on_one_model_get_what_one_gets(tower):
    explained = lambda image: usu.explain(tower, image, 1, preset=chosen("soft", parts=9), evaluations=12)  # noqa: E731
    alone = [explained(image).pixel_map for image in IMAGES]
    before, statistics = modes(tower), [buffer.clone() for buffer in tower.buffers()]
    with ThreadPoolExecutor(4) as pool:
        together = [found.pixel_map for found in pool.map(explained, IMAGES.repeat(3, 1, 1, 1))]
    for number, pixel_map in enumerate(together):
        assert (pixel_map == alone[number % 8]).all()
    assert modes(tower) == before
    assert all(torch.equal(now, then) for now, then in zip(tower.buffers(), statistics, strict=True))
    assert hooks(tower) == 0


def test_independent_models_run_side_by_side_and_those_that_share_layers_wait(tower):
    inside, other = threading.Event(), seeded(Tower)
    sharing = nn.Sequential(tower, nn.Identity())
    entered = {"other": threading.Event(), "sharing": threading.Event()}

    def enter(name: str, net: nn.Module) -> None:
        with undisturbed(net):
            entered[name].set()

    with undisturbed(tower):
        threads = [threading.Thread(target=enter, args=pair) for pair in (("other", other), ("sharing", sharing))]
        for thread in threads:
            thread.start()
        assert entered["other"].wait(20)
        assert not entered["sharing"].wait(0.2)
        inside.set()
    for thread in threads:
        thread.join(20)
    assert entered["sharing"].is_set()


def test_hooks_that_an_exception_left_behind_are_taken_away(tower):
    mine = tower.register_forward_hook(lambda *_: None)

    def ours(*_: object) -> None:
        raise KeyError

    ours.__module__ = "usu.sources.layers"
    with undisturbed(tower):
        tower.norm.register_forward_hook(ours)
    assert hooks(tower) == 1
    mine.remove()


@pytest.fixture
def _interruptible():
    """Python's own handler, also where the tests run in the background and the shell has Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_at_any_line_leaves_the_model_as_it_was(tower):
    """Ctrl-C, raised at every line of entering and leaving in turn, and in the middle of the work."""
    before, handler = modes(tower), signal.getsignal(signal.SIGINT)
    source = undisturbed.__enter__.__code__.co_filename

    def interrupted_at(step: int) -> bool:
        lines = 0

        def trace(frame: object, event: str, _: object) -> object:
            nonlocal lines
            if frame.f_code.co_filename != source:
                return None
            if event == "line":
                lines += 1
                if lines == step:
                    signal.raise_signal(signal.SIGINT)
            return trace

        sys.settrace(trace)
        try:
            with undisturbed(tower):
                tower(IMAGES[:1])
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False

    step, raised = 1, 0
    while interrupted_at(step):
        raised += 1
        assert modes(tower) == before, step
        assert signal.getsignal(signal.SIGINT) is handler, step
        step += 1
    assert raised > 20, "the interrupt was never raised"
    free = threading.Thread(target=lambda: undisturbed(tower).__enter__())
    free.start()
    free.join(20)
    assert not free.is_alive(), "a lock was kept"


def test_what_is_no_module_is_left_alone():
    def model(batch: Tensor) -> Tensor:
        return batch

    with undisturbed(model):
        assert model(IMAGES[:1]).shape == (1, 3, 32, 32)
