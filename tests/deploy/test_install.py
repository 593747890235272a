"""`pip install`, `pipx` and `uvx` make a wheel of this repository with all a node needs, and a node that serves.

The wheel is built from a copy of what is in the repository, in a folder that goes away. What it depends on comes from
where pip is told to look; without that, and without the tools, the tests are skipped and say so.
"""

import os
import re
import shutil
import subprocess
import sys
import urllib.request
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pika
import pytest

from tests.kit.network import HOST
from tests.kit.ports import free_ports
from tests.kit.server_process import ROOT

pytestmark = pytest.mark.slow

PACKAGES: Final = ("node", "cluster", "spark_ops")
INSTALL_S: Final = 300.0
START_S: Final = 30.0
NOT_THERE: Final = re.compile(
    r"No matching distribution|Could not find a version|Temporary failure|Network is unreachable|"
    r"Connection (?:refused|broken|to)|Max retries"
)
"""Pip says this when its index is not reached or does not have a package."""

Run = Callable[..., str]


def _pip(python: Path | str, *arguments: str) -> None:
    """Run pip; skip the test if packages cannot be had."""
    done = subprocess.run(
        [str(python), "-m", "pip", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    if done.returncode and NOT_THERE.search(done.stdout):
        pytest.skip(f"pip finds no packages here: {done.stdout.strip().splitlines()[-1][:200]}")
    assert done.returncode == 0, done.stdout


def _files() -> list[str]:
    """Return the files of the packages that are in the repository."""
    listed = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("this is no repository of git")
    return listed.stdout.splitlines()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with our wheel, and those of all it depends on."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in [*_files(), "pyproject.toml", "README.md", "LICENSE"]:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    _pip(sys.executable, "wheel", "-w", str(folder), str(source))
    return folder


@pytest.fixture(scope="module")
def wheel(wheels: Path) -> Path:
    """Ours."""
    [found] = wheels.glob("fluffle-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheels: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh virtual environment with the wheel in it."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=True)
    _pip(home / "bin" / "python", "install", "--no-index", "--find-links", str(wheels), str(wheel))
    return home / "bin"


def _run(*command: object, **environ: str) -> str:
    """Return what a program prints when run far away from this folder; it must end well."""
    done = subprocess.run(
        list(map(str, command)),
        cwd="/",
        env={"PATH": os.environ["PATH"], **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _version() -> str:
    return _run(sys.executable, "-m", "node", "version", PYTHONPATH=str(ROOT)).strip()


def test_everything_is_in_the_wheel(wheel: Path) -> None:
    """Pages of the UI and generated modules, too; and nothing of tests."""
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {name for name in _files() if not name.endswith((".pyi", ".proto"))}
    assert any("static/" in name for name in wanted)
    assert any(name.endswith("_pb2.py") for name in wanted)
    assert sorted(wanted - names) == []
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == set(PACKAGES)
    assert any(name.endswith("/LICENSE") for name in names)


def test_a_node_of_the_wheel_serves(installed: Path, tmp_path: Path) -> None:
    """To a client of another environment, to a browser, and to its own command line."""
    port, http_port = free_ports(2)
    data = tmp_path / "data"
    with subprocess.Popen(
        [
            *(installed / "fluffle", "start", "--name", "n1@localhost", "--data", data),
            *("--listen", f"{HOST}:{port}", "--management", f"{HOST}:{http_port}"),
        ],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log").open("wb"),
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert "ready" in process.stdout.readline(), (tmp_path / "log").read_text()
            with pika.BlockingConnection(pika.ConnectionParameters(HOST, port)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("q", durable=True)
                channel.basic_publish("", "q", b"hello", pika.BasicProperties(delivery_mode=2))
            with urllib.request.urlopen(f"http://{HOST}:{http_port}/", timeout=10) as page:
                scripts = re.findall(r'src="([^"]+\.js)"', page.read().decode())
            assert scripts
            for script in scripts:
                with urllib.request.urlopen(
                    f"http://{HOST}:{http_port}/{script.lstrip('/')}", timeout=10
                ) as answer:
                    assert answer.status == 200
            rows = _run(installed / "fluffle", "ctl", "--data", data, "-s", "list_queues", "name", "messages")
            assert rows == "q\t1\n"
        finally:
            process.terminate()
            process.wait(START_S)
    assert process.returncode == 0


def test_a_cluster_of_the_wheel_has_what_nodes_say_to_each_other(installed: Path, tmp_path: Path) -> None:
    """All that a node of a cluster imports; `spark-ops` starts without pyspark."""
    modules = sorted(
        name.removesuffix(".py").replace("/", ".") for name in _files() if name.endswith("_pb2.py")
    )
    program = (
        "import importlib, sys\nfor name in sys.argv[1:]:\n    print(importlib.import_module(name).__file__)"
    )
    places = _run(
        installed / "python", "-c", program, *modules, "node.process.agent", "node.agent.operations"
    ).splitlines()
    assert len(places) == len(modules) + 2
    assert all(Path(place).is_relative_to(installed.parent) for place in places)
    _run(installed / "fluffle", "certs", "rabbit@n1", "--out", tmp_path / "certs")
    assert "plan" in _run(installed / "spark-ops", "--help")


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """Install a tool; where it is. Skips where it cannot be had."""
    home = tmp_path_factory.mktemp("tools")

    def install(name: str) -> Path:
        if not (home / name).exists():
            venv.create(home / name, with_pip=True)
            _pip(home / name / "bin" / "python", "install", name)
        return home / name / "bin"

    yield install
    shutil.rmtree(home)


def test_uvx(tool: Callable[[str], Path], wheels: Path, wheel: Path, tmp_path: Path) -> None:
    said = _run(
        *(tool("uv") / "uvx", "--offline", "--no-index", "--find-links", wheels),
        *("--python", sys.executable, "--from", wheel, "fluffle", "version"),
        HOME=str(tmp_path),
        UV_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert said.strip().endswith(_version())


def test_pipx(tool: Callable[[str], Path], wheels: Path, wheel: Path, tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
    }
    shared = tool("pipx").parent
    _pip(shared / "bin" / "python", "download", "--no-deps", "-d", str(wheels), "pip")
    _run(
        *(tool("pipx") / "pipx", "install", "--python", sys.executable, wheel),
        **environ,
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(wheels),
    )
    assert _run(tmp_path / "bin" / "fluffle", "version").strip() == _version()
