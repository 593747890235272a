"""Finds a seed that shows a bug which was put back: any change of the product may alter what a seed does."""

from collections.abc import Callable
from typing import Final

TRIES: Final = 60
"""How many seeds are tried for a bug that its own seed does not find any more: some 10 s of CPU."""


def finding_seed(
    run: Callable[[int], object], kept: int, error: type[BaseException], tries: int = TRIES
) -> int:
    """The first seed with which a run that has the bug fails in this way: the one that was kept, or another.

    Fails the test if there is none.
    """
    for seed in (kept, *range(tries)):
        try:
            run(seed)
        except error:
            return seed
        except AssertionError:
            continue  # an accident of what stands for the bug
    raise AssertionError(f"none of {tries} seeds finds it any more")
