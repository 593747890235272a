"""A plug-in of one's own is made, tested, installed and used as docs/plugins.md says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from node.amqp.methods import ExchangeDeclare, QueueBind
from tests.conformance.queue_steps import drain
from tests.docs.pages import Page
from tests.kit.amqp_client import Connection
from tests.kit.fluffle_server import FluffleServer
from tests.kit.server_process import ROOT


@pytest.mark.slow
def test_a_plugin_is_made_installed_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are installed into a folder of the test, without an index and with the tools that are here."""
    page = Page("plugins", {"fluffle plugins": f"{sys.executable} -m node plugins --data {tmp_path}/data"})
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}

    def run(*words: str) -> None:
        subprocess.run(words, cwd=tmp_path, env=environ, check=True, timeout=120)

    run("sh", "-ec", page.block("sh", "### 1. Make it"))
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "first_bound")
    shutil.rmtree(tmp_path / "first_bound" / "__pycache__", ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation")
    run(*pip, "--target", "site", "./first_bound")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    server = FluffleServer({}, plugins=("first_bound",))
    try:
        channel = Connection(server).channel(1)
        channel.call(ExchangeDeclare, exchange="e", type="x-first-bound")
        queues = [channel.declare(exclusive=True) for _ in range(3)]
        for queue in queues:
            channel.call(QueueBind, queue=queue, exchange="e")
        for key in "abc":
            channel.publish("e", key, key.encode())
        assert [drain(channel, queue) for queue in queues] == [[b"a", b"b", b"c"], [], []]
        channel.connection.close()
    finally:
        server.stop()
