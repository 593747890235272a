"""Run the tests of a single node on three with every queue mirrored: `cluster_plugin`, and a policy in each vhost.

    .venv/bin/python -m pytest -p tests.conformance.mirror_plugin tests/conformance/test_section_[345]_*.py

Exclusive queues are not mirrored; the plugin has made those that tests use by the way into others, on the first node.
A test that sets a policy of its own has its queues unmirrored, since one policy holds for a queue.
"""

from collections.abc import Mapping
from typing import Any, Final

from tests.conformance import cluster_plugin
from tests.kit import servers

POLICY: Final = "ha-all"


class _MirroringAdmin:
    """`Admin` that adds the policy to each vhost that it adds."""

    def __init__(self, admin: servers.Admin) -> None:
        self._admin = admin
        self.mirror("/")

    def mirror(self, vhost: str) -> None:
        # Below all others.
        self._admin.set_policy(vhost, POLICY, ".*", {"ha-mode": "all"}, -1, "queues")

    def add_vhost(self, name: str) -> None:
        self._admin.add_vhost(name)
        self.mirror(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)


def _start_server(settings: Mapping[str, str] | None = None) -> Any:
    node = cluster_plugin._start_server(settings)
    node.admin = _MirroringAdmin(node.admin)
    return node


servers.start_server = _start_server
