"""Seeds of a simulator, and the bugs that are put back to see that it finds them."""

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

import pytest

from tests.kit.seeds import fresh_seeds

TRIES: Final = 60
"""So many seeds are tried for a bug that its own seed does not find any more: some 10 s of CPU."""

KIND, _, NUMBER = os.environ.get("FLUFFLE_SIM", "").partition(":")


@contextmanager
def put_back(bugs: Mapping[str, Callable[[Any], None]], name: str) -> Iterator[None]:
    """Have a bug while the context lasts."""
    with pytest.MonkeyPatch.context() as patch:
        bugs[name](patch)
        yield


def count_seeds(
    kind: str, run: Callable[[int], Mapping[str, int]], *, fixed: int, box_s: float
) -> Counter[str] | None:
    """Run seeds, all of which must end well: those that are asked for, or `fixed` ones and fresh ones for `box_s`.

    FLUFFLE_SIM=kind:N asks for one, MIRROR_SEEDS=N for those from 0 to N.   run: gives what happened, by its name.
    Returns: what happened; None: somebody asked for seeds, and was told.
    """
    total = Counter[str]()

    def do(seed: int) -> None:
        try:
            total.update(run(seed))
        except Exception as error:
            raise AssertionError(f"FLUFFLE_SIM={kind}:{seed} {type(error).__name__}: {error}") from error

    asked = [int(NUMBER)] if kind == KIND else range(int(os.environ.get("MIRROR_SEEDS", "0")))
    for seed in asked or range(fixed):
        do(seed)
    if asked:
        print(f"{kind}: {dict(total)}")
        return None
    end, seed = monotonic() + box_s, fresh_seeds()
    while monotonic() < end:
        do(seed)
        seed += 1
    return total


def finding_seed(
    run: Callable[[int], object], kept: int, error: type[BaseException], tries: int = TRIES
) -> int:
    """The first seed with which a run that has the bug fails in this way: the one that was kept, or another.

    Any change of the product may alter what a seed does. Another one is told as a warning, for it costs seconds to find
    it each time. Fails the test if there is none.
    """
    for seed in (kept, *range(tries)):
        try:
            run(seed)
        except error:
            if seed != kept:
                warnings.warn(f"seed {kept} does not find it any more, {seed} does: keep that", stacklevel=2)
            return seed
        except AssertionError:
            continue  # an accident of what stands for the bug
    raise AssertionError(f"none of {tries} seeds finds it any more")
