"""`rabbitmq-plugins`: outputs as a live RabbitMQ 3.10.8's, and the file that it writes (management §3.2)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from node.cli.ctl import plugin_commands
from node.cli.ctl.main import main
from node.cli.ctl.tools import TOOLS
from node.io import control
from node.io.plugin_packages import PackagedPlugin
from tests.node.cli.ctl.fake_node import NODE, FakeNode, environment

Plugins = Callable[..., tuple[int, str, str]]

HEAD = f" Configured: E = explicitly enabled; e = implicitly enabled\n | Status: * = running on {NODE}\n |/\n"
ALL = ["rabbitmq_management", "rabbitmq_management_agent", "rabbitmq_prometheus", "rabbitmq_web_dispatch"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "enabled_plugins"


@pytest.fixture
def plugins(fake: FakeNode, tmp_path: Path, file: Path, capsys: "pytest.CaptureFixture[str]") -> Plugins:
    fake.answers["plugins"] = {"file": str(file), "running": ALL}
    (tmp_path / "n1").mkdir()

    def call(*words: str) -> tuple[int, str, str]:
        environ = environment(tmp_path)
        data = ["-n", NODE, "--data", str(tmp_path / "n1")]
        code = main([*data, *words], environ, tool=TOOLS["plugins"], ask=fake)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_list(plugins: Plugins, file: Path) -> None:
    """Without a file what we have is on."""
    code, output, _ = plugins("list", "q_(man|p|web_d)")
    assert (code, output) == (
        0,
        f'Listing plugins with pattern "q_(man|p|web_d)" ...\n{HEAD}'
        "[E*] rabbitmq_management       3.10.8\n"
        "[e*] rabbitmq_management_agent 3.10.8\n"
        "[E*] rabbitmq_prometheus       3.10.8\n"
        "[e*] rabbitmq_web_dispatch     3.10.8\n",
    )
    file.write_text("[rabbitmq_prometheus, rabbitmq_top].\n")
    assert (
        plugins("-q", "list", "-m", "q_(man|p|web_d|top)")[1]
        == "\n".join(sorted([*ALL, "rabbitmq_top"])) + "\n"
    )
    assert plugins("-q", "list", "-m", "-E")[1] == "rabbitmq_prometheus\nrabbitmq_top\n"
    assert plugins("-q", "list", "-m", "-e", "manage")[1] == "rabbitmq_management_agent\n"
    assert plugins("-s", "list", "prom")[1] == "[E*] rabbitmq_prometheus 3.10.8\n"
    assert plugins("list", "nope")[1] == f'Listing plugins with pattern "nope" ...\n{HEAD}'
    assert plugins("list", "(")[0] == 70
    assert (
        "     Dependencies:\t[rabbitmq_management_agent,rabbitmq_web_dispatch]\n"
        in plugins("list", "-v", "rabbitmq_management$")[1]
    )
    found = json.loads(plugins("list", "--formatter", "json")[1])
    assert found["format"] == "normal"
    assert {each["name"]: each["enabled"] for each in found["plugins"]}[
        "rabbitmq_management"
    ] == "not_enabled"


def test_disable_and_enable(plugins: Plugins, file: Path) -> None:
    assert plugins("disable", "rabbitmq_prometheus") == (
        0,
        f"Disabling plugins on node {NODE}:\nrabbitmq_prometheus\n"
        "The following plugins have been configured:\n"
        "  rabbitmq_management\n  rabbitmq_management_agent\n  rabbitmq_web_dispatch\n"
        f"Applying plugin configuration to {NODE}...\n"
        "The following plugins have been disabled:\n  rabbitmq_prometheus\n\n"
        "set 3 plugins.\n"
        "Offline change; changes will take effect at broker restart.\n",
        "",
    )
    assert file.read_text() == "[rabbitmq_management].\n"
    code, output, _ = plugins("enable", "rabbitmq_prometheus")
    assert (code, "The following plugins have been enabled:\n  rabbitmq_prometheus\n" in output) == (0, True)
    assert file.read_text() == "[rabbitmq_management,rabbitmq_prometheus].\n"
    assert plugins("enable", "rabbitmq_prometheus")[1].endswith("Plugin configuration unchanged.\n")
    assert plugins("set", "rabbitmq_prometheus")[0] == 0
    assert file.read_text() == "[rabbitmq_prometheus].\n"
    assert plugins("disable", "--all")[1].startswith(
        f"Disabling ALL plugins on node {NODE}\nAll plugins have been disabled.\n"
    )
    assert file.read_text() == "[].\n"
    assert plugins("enable", "--all")[0] == 0


def test_what_needs_a_plugin_goes_with_it(plugins: Plugins, file: Path) -> None:
    assert plugins("disable", "rabbitmq_management_agent")[0] == 0
    assert file.read_text() == "[].\n"


def test_names_of_others_are_kept(plugins: Plugins, file: Path) -> None:
    """Images write the file, and may share it with RabbitMQ."""
    file.write_text("[rabbitmq_shovel].")
    assert plugins("enable", "rabbitmq_management")[0] == 0
    assert file.read_text() == "[rabbitmq_management,rabbitmq_shovel].\n"


def test_what_is_refused(plugins: Plugins, file: Path) -> None:
    code, _, error = plugins("enable", "nope", "rabbitmq_prometheus")
    assert (code, error) == (70, "Error:\n{:plugins_not_found, [:nope]}\n")
    assert plugins("disable", "nope")[1].endswith("Plugin configuration unchanged.\n")
    for words in (("enable",), ("disable",), ("enable", "x", "--all")):
        assert plugins(*words)[0] == 64
    assert not file.exists()
    file.write_text("{no list}")
    assert plugins("list")[0] == 69


def test_is_enabled(plugins: Plugins) -> None:
    assert plugins("is_enabled", "rabbitmq_management") == (
        0,
        f"Asking node {NODE} if plugin rabbitmq_management is enabled...\n"
        f"Plugin rabbitmq_management is enabled on node {NODE}\n",
        "",
    )
    assert plugins("is_enabled", "rabbitmq_shovel", "rabbitmq_mqtt")[::2] == (
        69,
        f"Error:\nPlugins rabbitmq_shovel, rabbitmq_mqtt are not enabled on node {NODE}. "
        f"Enabled plugins and dependencies: {', '.join(ALL)}\n",
    )
    assert plugins("is_enabled", "rabbitmq_management", "--offline")[1] == (
        "Inferring if plugin rabbitmq_management is from local environment...\n"
        "Plugin rabbitmq_management is enabled\n"
    )


def test_without_a_node(plugins: Plugins, fake: FakeNode, tmp_path: Path, file: Path) -> None:
    """Beside the node's data directory; what runs is not known."""
    fake.answers["plugins"] = control.ControlUnreachable("nobody there")
    assert f"[failed to contact {NODE} - status not shown]" in plugins("list")[1]
    assert plugins("disable", "rabbitmq_prometheus")[0] == 0
    assert file.read_text() == "[rabbitmq_management].\n"
    assert plugins("directories")[1].endswith(f"Enabled plugins file: {file}\n")
    assert plugins("enable", "rabbitmq_prometheus", "--online")[0] == 69
    assert plugins("directories", "--offline", "--online")[0] == 64


def test_its_names_are_its_own(fake: FakeNode, capsys: "pytest.CaptureFixture[str]") -> None:
    assert main(["list"], {}, ask=fake) == 64
    assert "Command 'list' not found" in capsys.readouterr().err


# --- plug-ins that all nodes have together ---


RANDOM = "rabbitmq_random_exchange"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> str:
    """A plug-in of another package."""
    found = {"mine": PackagedPlugin("mine", "1.2", "its summary")}
    monkeypatch.setattr(plugin_commands, "packages", lambda: found)
    return "mine"


def changes(fake: FakeNode) -> list[tuple[str, object]]:
    """Return the changes that the node was asked for."""
    return [(name, dict(arguments)) for name, arguments in fake.asked if name.endswith("able_plugin")]


def test_a_plugin_for_all_nodes_is_enabled_at_once(plugins: Plugins, file: Path, fake: FakeNode) -> None:
    assert plugins("enable", RANDOM) == (
        0,
        f"Enabling plugins on node {NODE}:\n{RANDOM}\n"
        "The following plugins have been configured:\n"
        + "".join(f"  {name}\n" for name in sorted([*ALL, RANDOM]))
        + f"Applying plugin configuration to {NODE}...\n"
        f"The following plugins have been enabled:\n  {RANDOM}\n\n"
        "started 1 plugins.\n",
        "",
    )
    assert changes(fake) == [("enable_plugin", {"plugin": RANDOM})]
    assert file.read_text() == f"[rabbitmq_management,rabbitmq_prometheus,{RANDOM}].\n"
    fake.answers["plugins"]["running"] = sorted([*ALL, RANDOM])
    assert plugins("enable", RANDOM)[1].endswith("Plugin configuration unchanged.\n")
    assert plugins("disable", RANDOM)[1].endswith(
        f"The following plugins have been disabled:\n  {RANDOM}\n\nstopped 1 plugins.\n"
    )
    assert changes(fake)[1:] == [("disable_plugin", {"plugin": RANDOM})]
    assert file.read_text() == "[rabbitmq_management,rabbitmq_prometheus].\n"


def test_a_refusal_leaves_the_file_as_it_was(plugins: Plugins, file: Path, fake: FakeNode) -> None:
    file.write_text(f"[{RANDOM}].\n")
    fake.answers["plugins"]["running"] = [RANDOM]
    text = f"cannot disable plug-in '{RANDOM}': exchange 'e' in vhost '/' is of type 'x-random'"
    fake.answers["disable_plugin"] = control.ControlError(69, text)
    code, _, error = plugins("disable", RANDOM)
    assert (code, text in error) == (69, True)
    assert file.read_text() == f"[{RANDOM}].\n"


def test_without_a_node_it_is_enabled_at_the_next_start(plugins: Plugins, file: Path, fake: FakeNode) -> None:
    assert plugins("enable", "--offline", RANDOM)[1].endswith("changes will take effect at broker restart.\n")
    assert changes(fake) == []
    assert RANDOM in file.read_text()


def test_another_change_still_needs_a_start(plugins: Plugins, file: Path, fake: FakeNode) -> None:
    """The part that is for all nodes is in effect even then."""
    file.write_text("[].\n")
    fake.answers["plugins"]["running"] = []
    output = plugins("enable", RANDOM, "rabbitmq_prometheus")[1]
    assert output.endswith("changes will take effect at broker restart.\n")
    assert changes(fake) == [("enable_plugin", {"plugin": RANDOM})]


def test_only_what_changes_decides_whether_a_start_is_needed(
    plugins: Plugins, file: Path, fake: FakeNode
) -> None:
    """A node whose HTTP API is off by another setting has plug-ins in its file that do not run."""
    fake.answers["plugins"]["running"] = []
    assert plugins("enable", RANDOM)[1].endswith("started 1 plugins.\n")


def test_what_another_node_enabled_stays(plugins: Plugins, file: Path, fake: FakeNode) -> None:
    """The file of this node does not name it, so a change of the file says nothing about it."""
    file.write_text("[].\n")
    fake.answers["plugins"]["running"] = [RANDOM]
    assert plugins("enable", "rabbitmq_sharding")[0] == 0
    assert changes(fake) == [("enable_plugin", {"plugin": "rabbitmq_sharding"})]


def test_plugins_of_packages_are_listed_and_enabled(
    plugins: Plugins, file: Path, fake: FakeNode, package: str
) -> None:
    assert plugins("-s", "list", package)[1] == f"[  ] {package} 1.2\n"
    assert "     Description: \tits summary\n" in plugins("list", "-v", package)[1]
    assert plugins("enable", package)[1].endswith("started 1 plugins.\n")
    assert changes(fake) == [("enable_plugin", {"plugin": package})]
    assert package in file.read_text()


def test_a_new_plugin_is_made_in_the_working_directory(
    plugins: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output, _ = plugins("new", "mine")
    assert code == 0
    assert output.endswith("then: fluffle plugins enable mine\n")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [
        "mine.py",
        "pyproject.toml",
        "test_mine.py",
    ]
    assert plugins("new", "mine")[::2] == (70, "Error:\nmine cannot be made: File exists\n")
    assert plugins("new", "../other")[0] == 64
    assert not (tmp_path.parent / "other").exists()
