"""Holds processes to a part of a core by control groups of their own, so that nodes are unlike. Needs root on Linux."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

PERIOD_US = 100_000
MOUNT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def held(pids: Mapping[int, float]) -> Iterator[None]:
    """Hold each process to its number of cores while the context lasts. Raises: RuntimeError if that is not possible.

    pids: cores by process id.
    """
    made: list[tuple[Path, Path]] = []
    try:
        for pid, cores in pids.items():
            parent = _parent()
            group = parent / f"rebalance-demo-{pid}"
            group.mkdir()
            made.append((group, parent))
            _limit(group, round(cores * PERIOD_US))
            (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        _remove(made)
        raise RuntimeError(f"a process cannot be held to a part of a core: {error}") from error
    try:
        yield
    finally:
        _remove(made)


def _parent() -> Path:
    """Return the group in which ours are made: the root of version 2, or that of `cpu` of version 1."""
    controllers = MOUNT / "cgroup.controllers"
    if not controllers.exists():
        return MOUNT / "cpu"
    if "cpu" not in (MOUNT / "cgroup.subtree_control").read_text().split():
        (MOUNT / "cgroup.subtree_control").write_text("+cpu")
    return MOUNT


def _limit(group: Path, quota_us: int) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        return
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(quota_us))


def _remove(made: list[tuple[Path, Path]]) -> None:
    """Give the processes that are left back to the parents, and remove the groups."""
    for group, parent in made:
        with contextlib.suppress(OSError):
            for pid in (group / "cgroup.procs").read_text().split():
                (parent / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            group.rmdir()
