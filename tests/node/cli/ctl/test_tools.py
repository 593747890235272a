"""RabbitMQ's tools under their own names (management §3.1): links, overviews."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from node.cli.ctl.main import main
from node.cli.ctl.tools import LINKS, TOOLS, called_as, make_links
from node.cli.main import main as fluffle


def test_names() -> None:
    tool = called_as("/usr/sbin/rabbitmq-diagnostics")
    assert tool is not None
    assert tool == ("diagnostics", "rabbitmq-diagnostics")
    assert called_as("rabbitmq-server") is None
    assert called_as("/bin/fluffle") is None


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("ctl", "list_users", "check_alarms"),
        ("diagnostics", "check_alarms", "add_user"),
        ("queues", "rebalance", "list_users"),
        ("upgrade", "drain", "rebalance"),
        ("plugins", "is_enabled", "list_users"),
    ],
)
def test_overviews(name: str, has: str, has_not: str, capsys: "pytest.CaptureFixture[str]") -> None:
    """Each shows its own commands, as RabbitMQ's does; it runs those of the others, too."""
    assert main(["help"], {}, tool=TOOLS[name]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"\n\x1b[1mUsage\x1b[0m\n\nfluffle {name} [--node <node>]")
    assert f"\n   {has} " in output
    assert f"\n   {has_not} " not in output


@pytest.mark.parametrize("name", TOOLS)
def test_as_commands_of_fluffle(name: str, capsys: "pytest.CaptureFixture[str]") -> None:
    assert fluffle([name, "help", "version"]) == 0
    assert f"fluffle {name} " in capsys.readouterr().out


def test_links(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "fluffle"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for _ in range(2):
        assert make_links(str(tmp_path / "links"), str(program)) == 0
    assert sorted(os.listdir(tmp_path / "links")) == sorted(LINKS)
    assert {os.path.realpath(tmp_path / "links" / name) for name in LINKS} == {str(program)}


def test_a_file_of_somebody_else_stays(tmp_path: Path, capsys: "pytest.CaptureFixture[str]") -> None:
    (tmp_path / "rabbitmqctl").write_text("mine")
    assert make_links(str(tmp_path), "/bin/fluffle") == 73
    assert (tmp_path / "rabbitmqctl").read_text() == "mine"
    assert "there is another file of that name" in capsys.readouterr().err


@pytest.mark.real
def test_scripts_where_there_is_no_executable(tmp_path: Path) -> None:
    assert make_links(str(tmp_path), "/x/node/__main__.py") == 0
    done = subprocess.run(
        [str(tmp_path / "rabbitmq-queues"), "help", "rebalance"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert "\nrabbitmq-queues [--node <node>]" in done.stdout
    assert sys.executable in (tmp_path / "rabbitmqctl").read_text()
