"""docs/tls.md, run from its top to its end."""

import shutil
from pathlib import Path

import pytest

from tests.docs.pages import Page, Shell
from tests.kit.network import HOST
from tests.kit.ports import free_ports

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

HERE = "localhost"


def test_tls_for_clients(tmp_path: Path) -> None:
    port, http_port = free_ports(2)
    places = {
        "broker.example.com": HERE,
        "/etc/fluffle/tls": str(tmp_path / "tls"),
        "listeners.ssl.default = 5671": f"listeners.ssl.default = {HOST}:{port}",
        "management.ssl.port = 15671": f"management.ssl.ip = {HOST}\nmanagement.ssl.port = {http_port}",
        "15671": str(http_port),
        "5671": str(port),
    }
    page, shell = Page("tls", places), Shell(tmp_path)
    shell.run(page.block("sh", "## Certificates"))
    settings = page.block("ini", "## The node")
    config = tmp_path / "fluffle.conf"
    config.write_text(settings)
    with shell.node("n1@localhost", "--config", str(config)):
        said = shell.run(page.block("sh", "## Does it work?"))
        assert "Verification: OK" in said
        assert shell.run_python(page.block("python", "## A client")) == "b'hello'\n"
        shell.run(page.block("sh", "## Clients with certificates"))
    config.write_text(settings + page.block("ini", "## Clients with certificates"))
    with shell.node("n1@localhost", "--config", str(config)):
        assert shell.run_python(page.block("python", "## Clients with certificates")) == "True\n"
        # Who has none does not get in.
        program = tmp_path / "without.py"
        program.write_text(page.block("python", "## A client"))
        assert "pika.exceptions" in shell.run("python without.py", code=1)
