"""A command line that asks a fake node."""

from pathlib import Path

import pytest

from node.cli.ctl.main import main
from tests.node.cli.ctl.fake_node import NODE, FakeNode, Run, environment


@pytest.fixture
def fake() -> FakeNode:
    return FakeNode()


@pytest.fixture
def run(fake: FakeNode, tmp_path: Path, capsys: "pytest.CaptureFixture[str]") -> Run:
    def call(*words: str) -> tuple[int, str, str]:
        environ = environment(tmp_path)
        code = main(["-n", NODE, "--data", str(tmp_path), *words], environ, ask=fake)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
