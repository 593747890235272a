"""A command line that asks a fake node."""

from pathlib import Path

import pytest

from node.cli.ctl.main import main
from tests.node.cli.ctl.fake_node import NODE, FakeNode, Run


@pytest.fixture
def fake() -> FakeNode:
    return FakeNode()


@pytest.fixture
def run(fake: FakeNode, tmp_path: Path, capsys: "pytest.CaptureFixture[str]") -> Run:
    def call(*words: str) -> tuple[int, str, str]:
        environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
        code = main(["-n", NODE, "--data", str(tmp_path), *words], environ, ask=fake)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
