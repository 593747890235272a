"""Fresh seeds, which a run of the tests tries beside its fixed ones, so that each run may find something new.

All of them follow from one number, which the run prints at its end and keeps in `var/seeds` from its beginning on:
`FLUFFLE_SEED=N make test-all` tries the same again. The fast gate has the same number each time.
"""

import os
import time
from pathlib import Path
from typing import Final

BASE: Final = int(os.environ.get("FLUFFLE_SEED") or time.time())
"""The number of this run; about that of the seconds since 1970, so that no two runs have the same."""
KEPT: Final = Path(__file__).resolve().parents[2] / "var" / "seeds"


def fresh_seeds(each: int = 1) -> int:
    """Return the first of the seeds that are new in this run.   each: how many it may try at most for each second."""
    return BASE * each


def keep() -> None:
    """Note the number of this run, in a file that only grows."""
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a") as file:
        file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} FLUFFLE_SEED={BASE}\n")
