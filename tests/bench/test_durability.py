"""The workloads on disk: what the bench must know of them."""

from bench.durability import DURABLE_WORKLOADS


def test_all_of_them_keep_messages() -> None:
    """That is why the bench syncs before them, and leaves them out beside another version."""
    assert all(workload.keeps for workload in DURABLE_WORKLOADS)


def test_restarts_and_settings_are_for_a_server_alone() -> None:
    """What a workload does to its server must not meet the next one, nor what the last one left this one."""
    fresh = {workload.name for workload in DURABLE_WORKLOADS if workload.fresh}
    assert fresh == {"persistent-1m", "paging-10m"}
