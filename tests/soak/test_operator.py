"""Random calls of the operator against its definition in 80 bits."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.test_operator_laws import assert_as_defined
from tests.problems import problems

CALLS = 10_000


@pytest.mark.soak
@hypothesis.settings(max_examples=CALLS, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
@given(
    p=problems(temperatures=(1e-300, 1e300), dtypes=("float64", "float32")),
    size=st.floats(-25, 25),
    gain=st.one_of(st.sampled_from([np.inf, 1.0]), st.floats(1, 30)),
    zeros=st.sampled_from([0.0, 0.5, 0.95, None]),
    flip=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_ten_thousand_calls_are_their_definition(p, size, gain, zeros, flip, seed):
    assert_as_defined(p, size, gain, zeros, flip, seed)
