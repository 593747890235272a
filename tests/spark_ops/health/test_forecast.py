"""A forecast is a band that holds what really comes, and there is none where there is no line."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_ops.health.forecast import Growth, Sums, eta, fit, fit_points, growth_of

MINUTES = 120
LEAST = {"span_min_s": 1740.0, "r2_min": 0.5}


def line(slope: float, noise: float, seed: int, minutes: int = MINUTES) -> list[tuple[float, float]]:
    random = Random(seed)
    return [(60.0 * at, 1e9 + slope * 60 * at + random.gauss(0, noise)) for at in range(minutes)]


def test_the_band_holds_the_true_crossing() -> None:
    """spark §6.19: on a line with noise in at least 90 % of cases."""
    held = known = 0
    for seed in range(400):
        slope = 1000.0 * (1 + seed % 7)
        points = line(slope, slope * 60 * MINUTES * (0.02 + 0.03 * (seed % 5)), seed)
        limit = 2e9
        found = eta(growth_of(points), limit, **LEAST)
        if found.eta_s is None or found.band is None:
            continue
        known += 1
        true_s = (limit - 1e9 - slope * points[-1][0]) / slope
        held += found.band[0] <= true_s <= found.band[1]
    assert known > 350
    assert held >= 0.9 * known


@given(seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_white_noise_gives_no_forecast(seed: int) -> None:
    """spark §6.19."""
    assert eta(growth_of(line(0.0, 5e7, seed)), 2e9, **LEAST).eta_s is None


@given(teeth=st.floats(1.5, 30), phase=st.floats(0, 1), noise=st.floats(0, 0.05), seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_a_saw_tooth_gives_no_forecast(teeth: float, phase: float, noise: float, seed: int) -> None:
    """spark §6.19: memory that a garbage collector takes back again and again."""
    random = Random(seed)
    points = [
        (60.0 * at, 1e9 + 2e8 * ((at / MINUTES * teeth + phase) % 1.0) + 2e8 * noise * random.random())
        for at in range(MINUTES)
    ]
    assert eta(growth_of(points), 2e9, **LEAST).eta_s is None


@given(
    points=st.lists(st.tuples(st.integers(-100, 100), st.integers(-1000, 1000)), min_size=3, max_size=40),
    cut=st.integers(0, 40),
)
def test_sums_of_parts_are_sums_of_the_whole(points: list[tuple[int, int]], cut: int) -> None:
    """spark §6.20, of lines."""
    whole, parts = Sums.of(points), Sums.of(points[:cut]) + Sums.of(points[cut:])
    assert (whole.n, whole.x, whole.y, whole.xx, whole.xy, whole.yy) == pytest.approx(
        (parts.n, parts.x, parts.y, parts.xx, parts.xy, parts.yy)
    )


def test_a_line_is_found_exactly() -> None:
    found = fit_points([(1e9 + x, 5e12 + 3.0 * x) for x in range(50)])
    assert found is not None
    assert (found.slope, found.r2) == (pytest.approx(3.0), pytest.approx(1.0))
    assert found.at(1e9 + 100) == pytest.approx(5e12 + 300)
    assert fit(Sums.of([(1, 1), (2, 2)])) is None
    assert fit(Sums.of([(1, 1), (1, 2), (1, 3)])) is None
    flat = fit_points([(x, 7.0) for x in range(9)])
    assert flat is not None
    assert (flat.slope, flat.r2) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("growth", "limit", "why"),
    [
        (None, 10.0, "too little history: 0 of 29 min"),
        (Growth(1, 1, 0, 1, 60), 10.0, "too little history: 1 of 29 min"),
        (Growth(1, 1, 0, 1, 3600), None, "there is no limit"),
        (Growth(1, 0, 0, 1, 3600), 10.0, "it does not grow"),
        (Growth(1, -1, 0, 1, 3600), 10.0, "it does not grow"),
        (Growth(1, 1, 0, 0.3, 3600), 10.0, "it does not grow steadily: R² 0.30"),
        (Growth(1, 1, 0, 0.9, 3600, halves=(2, -1)), 10.0, "it grows and falls again"),
        (Growth(1, 1, 0.6, 0.9, 3600), 10.0, "the slope is not certain"),
    ],
)
def test_no_forecast_has_a_reason(growth: Growth | None, limit: float | None, why: str) -> None:
    found = eta(growth, limit, **LEAST)
    assert (found.eta_s, found.band, found.why_not) == (None, None, why)


def test_at_the_limit_there_is_nothing_to_wait_for() -> None:
    assert eta(Growth(12, 0, 0, 0, 0), 10.0, **LEAST).eta_s == 0.0
