"""The paper's theorems on what interpolation cannot do, built as in its proofs.

The paper puts a single coarse *pixel* of value one beside a cell. Attributions are constant on cells, so that input is
not admissible; here a whole neighbouring cell is lit, which is a coarse map like any other.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from usu.operator.interpolate import interpolate
from usu.upsamplers import by_name

#: Every kernel whose support crosses the border of a cell.
CROSSING = ("bilinear", "bicubic", "lanczos3")


@dataclass(frozen=True)
class Case:
    """Two neighbouring cells of a grid, and a picture at least twice as fine."""

    grid: tuple[int, int]
    size: tuple[int, int]
    cell: tuple[int, int]
    neighbour: tuple[int, int]

    def lit(self) -> torch.Tensor:
        coarse = torch.zeros(self.grid, dtype=torch.float64)
        coarse[self.neighbour] = 1
        return coarse

    def inside(self) -> torch.Tensor:
        """The pixels of ``cell``, True; from the definition."""
        rows = torch.tensor([(2 * i + 1) * self.grid[0] // (2 * self.size[0]) for i in range(self.size[0])])
        columns = torch.tensor([(2 * j + 1) * self.grid[1] // (2 * self.size[1]) for j in range(self.size[1])])
        return (rows == self.cell[0])[:, None] & (columns == self.cell[1])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    # below twice the grid a cell may have no pixel off its centre towards the neighbour, and nothing to leak into
    along, across = draw(st.integers(2, 7)), draw(st.integers(1, 7))
    long, wide = (draw(st.integers(2 * n, 6 * n)) for n in (along, across))
    first, side = draw(st.integers(0, along - 2)), draw(st.integers(0, across - 1))
    pair = [(first, side), (first + 1, side)]
    if draw(st.booleans()):
        pair.reverse()
    if draw(st.booleans()):
        return Case((along, across), (long, wide), pair[0], pair[1])
    return Case((across, along), (wide, long), pair[0][::-1], pair[1][::-1])


@pytest.mark.parametrize("mode", CROSSING)
@given(case=cases())
def test_d1_a_cell_without_mass_receives_some_from_its_neighbour(mode: str, case: Case) -> None:
    coarse = case.lit()
    assert coarse[case.cell] == 0
    assert abs(interpolate(coarse, case.size, mode)[case.inside()].sum()) > 1e-3


@pytest.mark.parametrize("mode", CROSSING)
@given(case=cases(), seed=st.integers(0, 100))
def test_d4_two_maps_that_agree_on_a_cell_differ_inside_it(mode: str, case: Case, seed: int) -> None:
    one = torch.rand(case.grid, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    other = one + case.lit()
    assert one[case.cell] == other[case.cell]
    difference = interpolate(other, case.size, mode) - interpolate(one, case.size, mode)
    assert difference[case.inside()].abs().max() > 1e-3


@pytest.mark.parametrize("mode", CROSSING)
@given(case=cases(), seed=st.integers(0, 100))
def test_d2_scores_are_ignored_so_some_order_of_them_is_violated(mode: str, case: Case, seed: int) -> None:
    upsampler, coarse, inside = by_name(mode), case.lit(), case.inside()
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(case.size, dtype=torch.float64, generator=generator)
    result = upsampler(coarse, scores)
    assert torch.equal(result, upsampler(coarse, torch.rand(case.size, generator=generator)))

    values = result[inside]
    assert values.max() - values.min() > 1e-3  # the kernel varies with position ...
    backwards = torch.zeros_like(scores)
    backwards[inside] = (values < values.mean()).double()  # ... so score highest what got least
    got, rank = upsampler(coarse, backwards)[inside], backwards[inside]
    assert got[rank == 1].max() < got[rank == 0].min()


@given(case=cases(), seed=st.integers(0, 100))
def test_nearest_does_none_of_this(case: Case, seed: int) -> None:
    inside, lit = case.inside(), case.lit()
    assert (interpolate(lit, case.size, "nearest")[inside] == 0).all()
    one = torch.rand(case.grid, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    both = interpolate(torch.stack([one, one + lit]), case.size, "nearest")[:, inside]
    assert (both == one[case.cell]).all()


@given(
    grid=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    factor=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    seed=st.integers(0, 100),
)
def test_bilinear_keeps_the_total_at_whole_factors(grid: tuple[int, int], factor: tuple[int, int], seed: int) -> None:
    coarse = torch.randn(grid, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    result = interpolate(coarse, (grid[0] * factor[0], grid[1] * factor[1]), "bilinear")
    mass = coarse * factor[0] * factor[1]
    assert abs(result.sum() - mass.sum()) <= 1e-12 * mass.abs().sum()


def test_bilinear_does_not_keep_the_total_at_other_factors() -> None:
    coarse = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    # cells of 1 and 2 pixels: nearest is 1 0 0, bilinear 1 ½ 0
    assert interpolate(coarse, (1, 3), "nearest").sum() == 1
    assert interpolate(coarse, (1, 3), "bilinear").sum() == 1.5


@pytest.mark.parametrize("mode", ["bicubic", "lanczos3"])
def test_the_other_kernels_do_not_even_keep_the_total_at_whole_factors(mode: str) -> None:
    coarse = torch.zeros(7, 7, dtype=torch.float64)
    coarse[0, 0] = 1
    assert abs(interpolate(coarse, (224, 224), mode).sum() / 32**2 - 1) > 1e-2


def smooth_maps(count: int, side: int, generator: torch.Generator) -> torch.Tensor:
    """Like class activation maps: three bumps, about one object's part wide, on the same picture whatever the grid."""
    place = (torch.arange(side, dtype=torch.float64) + 0.5) / side
    centre = torch.rand(2, count, 3, 1, generator=generator, dtype=torch.float64)
    height = torch.rand(count, 3, 1, 1, generator=generator, dtype=torch.float64)
    rows, columns = torch.exp(-(place - centre).square() / (2 * 0.18**2))
    return (height * rows[..., None] * columns[..., None, :]).sum(1)


def cell_error(coarse: torch.Tensor) -> float:
    """Mean relative error of a cell's mass after bilinear to 224 x 224, over cells that have any to speak of."""
    side = coarse.shape[-1]
    pixels = 224 // side
    sums = interpolate(coarse, (224, 224), "bilinear").unflatten(-1, (side, pixels)).unflatten(-3, (side, pixels))
    mass = coarse * pixels**2
    error = (sums.sum((-3, -1)) - mass).abs() / mass
    return float(error[mass > 0.02 * mass.amax((-2, -1), keepdim=True)].mean())


def test_bilinear_moves_mass_between_cells() -> None:
    """About 14 % on smooth maps and 38 % on random rectified ones at 7 x 7; a finer grid moves less."""
    generator = torch.Generator().manual_seed(0)
    smooth, finer = (cell_error(smooth_maps(60, side, generator)) for side in (7, 14))
    random = cell_error(torch.randn(60, 7, 7, generator=generator, dtype=torch.float64).clamp(min=0))
    assert 0.05 < smooth < 0.30
    assert 0.20 < random < 0.60
    assert finer < smooth / 2
