"""A forecast estimates when a resource reaches its limit, by linear regression, or says why no forecast is possible.

The sums of a regression can be added, so the sums of parts of the data give the line through all of the data. Samples
of one process are autocorrelated, which makes the standard error too small: the error band is approximate.
Source: spark §3.2 (time to watermark), §6.19.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Final

BAND_ERRORS: Final = 2.0
"""The width of the band on each side, in standard errors."""


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums from which a regression line is computed; sums with the same origin of x and y can be added."""

    n: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.n + other.n,
            self.x + other.x,
            self.y + other.y,
            self.xx + other.xx,
            self.xy + other.xy,
            self.yy + other.yy,
        )

    @classmethod
    def of(cls, points: Iterable[tuple[float, float]]) -> "Sums":
        """Return the sums over points (x, y). Shift large x and y towards 0 first, else precision is lost."""
        n, sx, sy, sxx, sxy, syy = 0, 0.0, 0.0, 0.0, 0.0, 0.0
        for x, y in points:
            n, sx, sy = n + 1, sx + x, sy + y
            sxx, sxy, syy = sxx + x * x, sxy + x * y, syy + y * y
        return cls(n, sx, sy, sxx, sxy, syy)


@dataclass(frozen=True, slots=True)
class Fit:
    """A regression line.

    slope, se: the slope and its standard error.   r2: share of the variance of y that the line explains, 0 to 1.
    residual: mean square of the residuals.   sxx: Σ(x − mean)².
    """

    n: int
    slope: float
    se: float
    r2: float
    mean_x: float
    mean_y: float
    residual: float
    sxx: float

    def at(self, x: float) -> float:
        """Return the line's y at x."""
        return self.mean_y + self.slope * (x - self.mean_x)

    def error_at(self, x: float) -> float:
        """Return the standard error of the line's y at x."""
        if not self.n or not self.sxx:
            return 0.0
        return sqrt(self.residual * (1 / self.n + (x - self.mean_x) ** 2 / self.sxx))


def fit(sums: Sums) -> Fit | None:
    """Return the least-squares line; None for fewer than three points or if all have the same x."""
    n = sums.n
    if n < 3:
        return None
    sxx = sums.xx - sums.x * sums.x / n
    sxy = sums.xy - sums.x * sums.y / n
    syy = max(0.0, sums.yy - sums.y * sums.y / n)
    if sxx <= 1e-9 * max(1.0, sums.xx):
        return None
    slope = sxy / sxx
    left = max(0.0, syy - slope * sxy)
    residual = left / (n - 2)
    flat = syy <= 1e-12 * max(1.0, sums.yy)  # a constant y leaves only rounding errors
    r2 = 0.0 if flat else min(1.0, max(0.0, 1 - left / syy))
    return Fit(n, 0.0 if flat else slope, sqrt(residual / sxx), r2, sums.x / n, sums.y / n, residual, sxx)


def fit_points(points: Sequence[tuple[float, float]]) -> Fit | None:
    """Return the least-squares line through points whose coordinates may be large: they are shifted towards 0 first."""
    if not points:
        return None
    x0, y0 = points[0]
    line = fit(Sums.of((x - x0, y - y0) for x, y in points))
    if line is None:
        return None
    mean_x, mean_y = line.mean_x + x0, line.mean_y + y0
    return Fit(line.n, line.slope, line.se, line.r2, mean_x, mean_y, line.residual, line.sxx)


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of a resource.

    now, now_se: the current amount and its standard error.   slope, se: per second; r2: as in `Fit`.
    span_s: duration of the data.   halves: slopes of the first and the second half of the data; None: unknown. A value
    that rises and falls again, as memory under a garbage collector does, has a negative slope in one half.
    """

    now: float
    slope: float
    se: float
    r2: float
    span_s: float
    now_se: float = 0.0
    halves: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Eta:
    """The estimated time until a limit is reached, in seconds from now.

    eta_s: None if there is no forecast; why_not then says why.   band: earliest and latest time.
    """

    eta_s: float | None
    band: tuple[float, float] | None
    why_not: str | None


def growth_of(points: Sequence[tuple[float, float]]) -> Growth | None:
    """Return the growth of a series of (seconds, value), in order of time; None if no line can be fitted."""
    line = fit_points(points)
    if line is None:
        return None
    first, last = points[0][0], points[-1][0]
    middle = (first + last) / 2
    parts = [fit_points([p for p in points if (p[0] <= middle) is early]) for early in (True, False)]
    halves = (parts[0].slope, parts[1].slope) if parts[0] and parts[1] else None
    now, error = line.at(last), line.error_at(last)
    return Growth(now, line.slope, line.se, line.r2, last - first, error, halves)


def eta(growth: Growth | None, limit: float | None, *, span_min_s: float, r2_min: float) -> Eta:
    """Return when `growth` reaches `limit`. A forecast needs enough history and a line that fits and rises."""
    if not limit:
        return Eta(None, None, "there is no limit")
    if growth is not None and growth.now >= limit:
        return Eta(0.0, (0.0, 0.0), None)
    if growth is None or growth.span_s < span_min_s:
        seen = 0.0 if growth is None else growth.span_s
        return Eta(None, None, f"too little history: {seen / 60:.0f} of {span_min_s / 60:.0f} min")
    if growth.slope <= 0:
        return Eta(None, None, "it does not grow")
    if growth.r2 < r2_min:
        return Eta(None, None, f"it does not grow steadily: R² {growth.r2:.2f}")
    if growth.halves is not None and min(growth.halves) <= 0:
        return Eta(None, None, "it grows and falls again")
    if growth.slope <= BAND_ERRORS * growth.se:
        return Eta(None, None, "the slope is not certain")
    left = limit - growth.now
    spread = BAND_ERRORS * growth.now_se
    early = max(0.0, left - spread) / (growth.slope + BAND_ERRORS * growth.se)
    late = (left + spread) / (growth.slope - BAND_ERRORS * growth.se)
    return Eta(left / growth.slope, (early, late), None)
