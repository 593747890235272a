"""The topology that the command line names: from a file, or from the HTTP API of a node."""

import argparse
import os
import time
from pathlib import Path

from spark_ops.applying.client import Client
from spark_ops.applying.credentials import AddressError, address
from spark_ops.cli import carrying_out as common
from spark_ops.cli.errors import OpsError
from spark_ops.planning.rows import ClusterRows
from spark_ops.planning.topology import TopologyError, parse


def url_of(given: str) -> str | None:
    """Return the URL of a node without credentials; None if the argument is a file. Raises: OpsError."""
    if not given.startswith(("http://", "https://")):
        return None
    try:
        return address(given, {"SPARK_OPS_USER": ""}).shown
    except (AddressError, OSError) as error:
        raise OpsError(str(error)) from None


def read_topology(given: str, ca_file: str | None = None) -> ClusterRows:
    """Return the cluster of a file, or of `http://…`. Raises: OpsError."""
    now = time.time()
    if not given.startswith(("http://", "https://")):
        try:
            return parse(Path(given).read_bytes(), now=now)
        except OSError as error:
            raise OpsError(f"{given}: {error.strerror}") from None
        except TopologyError as error:
            raise OpsError(f"{given}: {error}") from None
    try:
        nodes = Client([address(given, os.environ)], ca_file=ca_file)
    except (AddressError, OSError) as error:
        raise OpsError(str(error)) from None
    return common.topology(nodes, now)


def add_topology_argument(parser: argparse.ArgumentParser, *, required: bool, help_: str) -> None:
    """Add the options `--topology` and `--ca-file`."""
    parser.add_argument("--topology", required=required, metavar="FILE|URL", help=help_)
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        help="certificates of the authorities that signed the nodes' certificates",
    )
