"""The outcomes of plans in a root of telemetry, where `report --after` keeps them and `plan` finds them.

    <root>/_outcomes/<cluster>/<first digits of the plan's id>.json

A file for each plan, so that two reports at a time lose nothing. A file that is no outcome is passed over: a plan
without a margin is the plan that was made before anything was learned.
"""

import json
from pathlib import Path
from typing import Final

from spark_ops.planning.outcomes import Learned, Outcome, learned, outcome_from
from spark_ops.telemetry.layout import escape
from spark_ops.telemetry.manifest import write_atomically

DIRECTORY: Final = "_outcomes"
FILES_MAX: Final = 100
"""The maximal number of outcomes that are kept of a cluster; the oldest files are removed."""
_DIGITS: Final = 16
_BYTES_MAX: Final = 4096


def keep(root: Path, cluster: str, outcome: Outcome) -> Path:
    """Keep an outcome in place of an earlier one of the same plan. Returns: its file. Raises: OSError."""
    folder = _folder(root, cluster)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{escape(outcome.plan_id.removeprefix('sha256:')[:_DIGITS])}.json"
    write_atomically(path, json.dumps(outcome.document, indent=1).encode())
    for old in sorted(folder.glob("*.json"), key=lambda each: (each.stat().st_mtime_ns, each.name))[
        :-FILES_MAX
    ]:
        old.unlink(missing_ok=True)
    return path


def known(root: Path, cluster: str) -> Learned | None:
    """Return what the outcomes of a cluster teach; None if there are none. Raises: OSError."""
    found: list[Outcome] = []
    for path in sorted(_folder(root, cluster).glob("*.json")):
        if path.stat().st_size > _BYTES_MAX:
            continue
        try:
            found.append(outcome_from(json.loads(path.read_bytes())))
        except ValueError:
            continue
    return learned(found)


def _folder(root: Path, cluster: str) -> Path:
    return root / DIRECTORY / (escape(cluster) or "_none")
