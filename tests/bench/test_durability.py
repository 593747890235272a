"""The workloads on disk: what the bench must know of them."""

from bench.durability import DURABLE_WORKLOADS


def test_all_of_them_keep_messages() -> None:
    """All durable workloads keep messages: the bench syncs before them and leaves them out beside another version."""
    assert all(workload.keeps for workload in DURABLE_WORKLOADS)


def test_restarts_and_settings_are_for_a_server_alone() -> None:
    """Workloads that leave something in their server get a fresh one, and nothing of theirs meets the next workload."""
    fresh = {workload.name for workload in DURABLE_WORKLOADS if workload.fresh}
    assert fresh == {"persistent-1m", "paging-10m"}
