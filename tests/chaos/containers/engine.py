"""A Docker engine for the scenarios in containers: one that answers already, or a private one, and images for it.

The private one has its own socket, data and process; it leaves the machine's iptables, routing and bridges alone. Its
base image is made by debootstrap, once: the archive is kept in the user's cache. `EngineMissing` says what is missing.
"""

import contextlib
import importlib.util
import io
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

START_S: Final = 60.0
STOP_S: Final = 40.0
PACKAGES: Final = "python3,python3-venv,ca-certificates,haproxy"
"""The base image has these: what a node needs, and HAProxy, so that one base does for both."""
MIRROR: Final = "http://deb.debian.org/debian"
ARCHIVE: Final = "base-bookworm-1.tar"
BASE: Final = "fluffle-test/base:bookworm"
HAPROXY: Final = "fluffle-test/haproxy:bookworm"
HAPROXY_FILE: Final = f"""\
FROM {BASE}
USER haproxy
CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]
"""


class EngineMissing(Exception):
    """Says that there is no engine here and none can be started; the text says why."""


def compose_command() -> list[str]:
    """Return the command that runs a compose file. Raises: EngineMissing."""
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if shutil.which("docker"):
        asked = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        if asked.returncode == 0:
            return ["docker", "compose"]
    raise EngineMissing("neither docker-compose nor docker compose is installed")


def client_of(address: str | None) -> Any:
    """A client of the engine there; None: where the environment says. Raises: EngineMissing."""
    if importlib.util.find_spec("docker") is None:
        raise EngineMissing("Python's package docker is not installed")
    import docker

    try:
        # What a scenario waits for longest is the build of an image.
        client = (
            docker.DockerClient(address, timeout=300) if address is not None else docker.from_env(timeout=300)
        )
        client.ping()
    except docker.errors.DockerException as error:
        raise EngineMissing(f"no Docker engine answers: {error}") from error
    return client


@contextlib.contextmanager
def running_engine() -> Iterator[tuple[Any, dict[str, str]]]:
    """An engine while the context lasts: its client, and the variables with which tools find it.

    Raises: EngineMissing.
    """
    compose_command()
    try:
        client = client_of(None)
    except EngineMissing as error:
        with private_engine(str(error)) as address:
            yield client_of(address), {"DOCKER_HOST": address}
    else:
        yield client, {}


@contextlib.contextmanager
def private_engine(reason: str) -> Iterator[str]:
    """An engine of our own while the context lasts: its address.   reason: why no other. Raises: EngineMissing."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    program = shutil.which("dockerd", path=path)
    if program is None:
        raise EngineMissing(f"{reason}; dockerd is not installed")
    if os.geteuid() != 0:
        raise EngineMissing(f"{reason}; an engine of our own needs root")
    # Sockets' paths have to be short.
    with tempfile.TemporaryDirectory(
        prefix="fluffle-docker-", dir="/tmp", ignore_cleanup_errors=True
    ) as name:
        directory = Path(name)
        bridges = _bridges()
        process = _start(program, path, directory) or _start(program, path, directory)
        if process is None:
            lines = (directory / "log").read_text(errors="replace").splitlines()
            raise EngineMissing("dockerd does not start: " + "; ".join(lines[-3:]))
        try:
            yield f"unix://{directory}/docker.sock"
        finally:
            _stop(process, directory, bridges)


def _start(program: str, path: str, directory: Path) -> "subprocess.Popen[bytes] | None":
    command = [program, "--data-root", f"{directory}/data", "--exec-root", f"{directory}/exec"]
    command += ["--pidfile", f"{directory}/pid", "--host", f"unix://{directory}/docker.sock"]
    # Ports are passed on by processes of the engine then, and nothing of the machine's own network is changed.
    command += ["--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--log-level", "warn"],
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(EngineMissing):
            client_of(f"unix://{directory}/docker.sock").close()
            return process
        time.sleep(0.1)
    process.kill()
    process.wait()
    (directory / "pid").unlink(missing_ok=True)
    return None


def _bridges() -> set[str]:
    """The names of bridges that engines have made."""
    return {path.name for path in Path("/sys/class/net").glob("br-*")}


def _stop(process: "subprocess.Popen[bytes]", directory: Path, bridges: set[str]) -> None:
    """End it, and let go of what it has mounted and connected.   bridges: that were there before it."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # It leaves the bridges of networks that were not removed, and their routes with them.
    for bridge in sorted(_bridges() - bridges):
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True, check=False)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([each for each in mounts if each.startswith(f"{directory}/")]):
        subprocess.run(["umount", "-l", mount], capture_output=True, check=False)


# --- images ---


def base_images(client: Any) -> dict[str, str]:
    """Images of Debian for nodes and HAProxy, as variables of docker-compose.yml. Raises: EngineMissing.

    Who has others names them in the same variables.
    """
    if "BASE_IMAGE" in os.environ and "HAPROXY_IMAGE" in os.environ:
        return {name: os.environ[name] for name in ("BASE_IMAGE", "HAPROXY_IMAGE")}
    client.api.import_image_from_file(str(_archive()), *BASE.split(":"))
    client.images.build(fileobj=io.BytesIO(HAPROXY_FILE.encode()), tag=HAPROXY, rm=True)
    return {"BASE_IMAGE": BASE, "HAPROXY_IMAGE": HAPROXY}


def _archive() -> Path:
    """The root file system of the base image, made if it is not in the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fluffle-test"
    archive = cache / ARCHIVE
    if archive.exists():
        return archive
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
    program = shutil.which("debootstrap", path=path)
    if program is None:
        raise EngineMissing("debootstrap is not installed, which makes a base image without a registry")
    if os.geteuid() != 0:
        raise EngineMissing("a base image without a registry needs root")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fluffle-base-", dir=cache) as name:
        root, made = Path(name) / "root", Path(name) / ARCHIVE
        command = [program, "--variant=minbase", f"--include={PACKAGES}", "bookworm", str(root), MIRROR]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
        )
        if done.returncode != 0:
            raise EngineMissing(f"debootstrap: {done.stdout[-300:]}{done.stderr[-300:]}")
        idle = ["var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale"]
        left_out = [f"--exclude=./{each}/*" for each in idle]
        subprocess.run(["tar", "-C", str(root), *left_out, "-cf", str(made), "."], check=True)
        made.replace(archive)
    return archive
