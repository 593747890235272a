"""Completion in shells: the scripts are run by the shell that they are for, where it is there."""

import shutil
import subprocess
from pathlib import Path

import pytest

from node.cli.main import main


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text: str, *words: str) -> set[str]:
    """Return the words that bash offers behind these words, of which the last one is begun."""
    line = " ".join(f"'{word}'" for word in words)
    code = f"{text}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _fluffle; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("fluffle", "st"), {"start", "store"}),
        (("fluffle", "ctl", "list_r"), {"list_rings"}),
        (("fluffle", "cluster", "st"), {"start", "status", "stop"}),
        (("fluffle", "start", "--list"), {"--listen"}),
        (("fluffle", "migrate", "cut"), {"cut-over"}),
        (("fluffle", "completion", ""), {"bash", "zsh", "fish", "-h", "--help"}),
        (("/usr/bin/rabbitmqctl", "list_r"), {"list_rings"}),
        (("rabbitmq-plugins", "en"), {"enable"}),
        (("fluffle", "ctl", "import_definitions", "--skip-u"), {"--skip-unsupported"}),
        (("fluffle", "nonsense", "x"), set()),
    ],
)
def test_bash(words: tuple[str, ...], expected: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert completed(script("bash", capsys), *words) == expected


def test_zsh_emulates_bash(capsys: pytest.CaptureFixture[str]) -> None:
    text = script("zsh", capsys)
    assert "bashcompinit" in text
    assert text.endswith(script("bash", capsys))


def test_fish(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = script("fish", capsys)
    assert "__fish_seen_subcommand_from ctl' -a '" in text
    assert " list_rings " in text
    if shutil.which("fish") is not None:
        file = tmp_path / "fluffle.fish"
        file.write_text(text)
        subprocess.run(["fish", "--no-execute", str(file)], check=True)


def test_a_shell_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["completion", "csh"])
    assert caught.value.code == 64
