"""docs/users.md, run from its top to its end."""

import json
import urllib.request
from pathlib import Path

import pytest

from tests.docs.pages import Page, Shell
from tests.kit.network import HOST
from tests.kit.ports import free_ports

pytestmark = pytest.mark.slow


def test_a_user_from_another_machine(tmp_path: Path) -> None:
    port, http_port = free_ports(2)
    page = Page("users", {"broker.example.com": HOST, "5672": str(port)})
    shell = Shell(tmp_path)
    options = ("--listen", f"{HOST}:{port}", "--management", f"{HOST}:{http_port}")
    with shell.node("n1@localhost", *options):
        shell.run(page.block("sh", "## A user with rights"))
        said = shell.run(page.block("sh", "## A user with rights", 1))
        assert "Success" in said
        assert "anna\t^orders\t.*\t.*" in said
        program = page.block("python", "## A client")
        assert shell.run_python(program) == "b'hello'\n"
        # She may make nothing else, as the page says.
        refused = program.replace('queue_declare("orders"', 'queue_declare("else"')
        assert refused != program
        (tmp_path / "refused.py").write_text(refused)
        assert "ACCESS_REFUSED" in shell.run("python refused.py", code=1)
        shell.run(page.block("sh", "## The web UI"))
        shell.run(page.block("sh", "## An administrator, and no guest"))
        rows = shell.run("fluffle ctl -s list_users --no-table-headers").splitlines()
        assert sorted(rows) == ["anna\t[management]", "boss\t[administrator]"]
        said = shell.run(page.block("sh", "## Policies"))
        assert "ha-sync-mode" in said
        shell.run(page.block("sh", "## Policies", 1))
        assert "limits" in shell.run("fluffle ctl -s list_operator_policies -p shop")
        asked = urllib.request.Request(f"http://{HOST}:{http_port}/api/whoami")
        asked.add_header("authorization", "Basic Ym9zczpjaG9vc2UtYW5vdGhlci1vbmU=")
        with urllib.request.urlopen(asked, timeout=10) as answer:
            assert json.load(answer)["tags"] == ["administrator"]
