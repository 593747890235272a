"""An uneven cluster, judged, planned, rebalanced and looked back at, with real data.

    python -m examples.rebalance_demo                       # some ten minutes; the report is in var/rebalance-demo
    python -m examples.rebalance_demo --minutes 20 --rate 80
    python -m examples.rebalance_demo --cores n1=0.5        # n1 has half a core, and the plan knows; needs root

Three nodes start with telemetry on. All queues begin on n1, so it has all the masters. Clients publish with confirms
and consume for some minutes; health is judged, a plan is made and carried out while they go on, and the report says
what was predicted and what came. At the end every message that was confirmed must have been consumed.

Needs Java 17 and `pip install -e '.[dev]'`. It opens nothing; Ctrl-C stops the clients, then the nodes.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from examples.rebalance_demo.cluster import DemoCluster, short
from examples.rebalance_demo.load import NAMES, Shop
from examples.rebalance_demo.quota import held

FOLDER = Path("var/rebalance-demo")
COPIES = 2
THRESHOLDS = """\
[health]
coverage_min = 0.9
span_min_minutes = 2

[master-imbalance]
hours = 0.03
"""
"""A demo has minutes, not hours, to see that masters are spread unevenly."""


def main() -> int:
    """Run all of it. Returns: 0 if nothing was lost and no queue had fewer copies than before."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.rebalance_demo", description="A rebalance with real data."
    )
    parser.add_argument("--minutes", type=float, default=4.0, help="of uneven load, at least 3 (4)")
    parser.add_argument(
        "--after", type=float, default=3.0, help="minutes of load when the plan was carried out (3)"
    )
    parser.add_argument(
        "--rate", type=float, default=30.0, help="messages a second of the busiest queue (30)"
    )
    parser.add_argument(
        "--cores",
        type=named_cores,
        action="append",
        default=[],
        metavar="NODE=CORES",
        help="hold a node to a part of a core, and give the plan that capacity; can be repeated",
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where everything goes; it is made anew")
    arguments = parser.parse_args()
    folder: Path = arguments.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "thresholds.toml").write_text(THRESHOLDS)
    say(f"three nodes in {folder}")
    cluster = DemoCluster(folder)
    shop = Shop(cluster.ports, arguments.rate)
    try:
        cluster.await_ready()
        (folder / "goals.toml").write_text(capacities(arguments.cores))
        with held({cluster.pid(name): cores for name, cores in arguments.cores}):
            return story(cluster, shop, folder, arguments)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except (RuntimeError, OSError) as error:
        say(str(error))
        return 1
    finally:
        shop.close(drain_s=0)
        cluster.stop()


def named_cores(text: str) -> tuple[str, float]:
    """The name and the cores of `n1=0.5`. Raises: ValueError."""
    name, _, cores = text.partition("=")
    if not name or not 0 < float(cores) <= 64:
        raise ValueError
    return name, float(cores)


def capacities(nodes: list[tuple[str, float]]) -> str:
    """The settings that tell a plan how many cores nodes have."""
    return "".join(f'[capacity."{name}@localhost"]\ncores = {cores}\n' for name, cores in nodes)


def story(cluster: DemoCluster, shop: Shop, folder: Path, arguments: argparse.Namespace) -> int:
    """Run the demo from the first declaration to the verdict; return the exit status."""
    cluster.mirror("^", COPIES)
    shop.declare()
    shop.open()
    say(f"{len(NAMES)} queues, all masters on n1: {arguments.minutes:g} minutes of load")
    root, state = folder / "telemetry", ["--state", str(folder / "state")]
    plan, thresholds = folder / "plan.json", ["--thresholds", str(folder / "thresholds.toml")]
    with collecting(cluster, root), watching(cluster) as copies:
        wait(arguments.minutes * 60)
        window = ["--window", f"{max(2, round(arguments.minutes - 1))}m"]
        say("health")
        spark_ops("health", root, *window, *thresholds, "-o", folder / "health.json", may_find=True)
        say("plan")
        goals = ["--goals", str(folder / "goals.toml")] if arguments.cores else []
        spark_ops("plan", root, *window, "--min-coverage", "0.9", *goals, "-o", plan)
        given = ["--health", folder / "health.json", "--plan", plan]
        spark_ops("report", *given, "-o", folder / "before.html")
        say("apply")
        copies.clear()
        spark_ops("apply", plan, "--yes", "--url", cluster.url, *state, may_find=True)
        say(f"{arguments.after:g} minutes of load after it")
        wait(arguments.after * 60)
        say("report")
        lately = ["--window", f"{max(2, round(arguments.after - 1))}m", *thresholds]
        files = ["-o", folder / "report.html", "--json", folder / "report.json", "--csv", folder / "tables"]
        spark_ops("report", root, "--plan", plan, "--after", *lately, *state, *files)
        fewest = min(copies.values(), default=0)
    tell_promise(json.loads((folder / "report.json").read_text()).get("after") or {})
    say("closing: consumers take what is left")
    shop.close()
    return ending(cluster, shop, folder, fewest)


def tell_promise(after: dict[str, Any]) -> None:
    """Say what the plan promised each node, and what came. CPU is a share of the node's cores."""
    keys = ("cpu_before", "cpu_predicted", "cpu_expected", "cpu_measured")
    for node in after.get("nodes", ()):
        shown = [f"{key[4:]} {node[key]:.1%}" for key in keys if node.get(key) is not None]
        masters = [str(node[f"masters_{when}"]) for when in ("before", "predicted", "measured")]
        say(f"{short(node['node'])}: CPU {', '.join(shown) or 'not known'}; masters {', '.join(masters)}")
    promise, balance = after.get("promise") or {}, after.get("balance") or {}
    say(f"busiest node over the mean: {', '.join(f'{when} {_figure(of)}' for when, of in balance.items())}")
    say(
        f"share of the promised change that came: {_figure(promise.get('share'))} "
        f"± {_figure(promise.get('error'))}: {promise.get('verdict')}; load average {os.getloadavg()[0]:.1f}"
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def ending(cluster: DemoCluster, shop: Shop, folder: Path, fewest: int) -> int:
    """Say how it went."""
    masters = Counter(short(queue["node"]) for queue in cluster.queues() if queue.get("node"))
    say(f"masters now: {', '.join(f'{node} {count}' for node, count in sorted(masters.items()))}")
    say(
        f"confirmed {shop.confirmed:,}, lost {shop.lost}; synchronised copies of any queue, at least: {fewest}"
    )
    result = {"confirmed": shop.confirmed, "lost": shop.lost, "copies_min": fewest, "masters": dict(masters)}
    (folder / "result.json").write_text(json.dumps(result) + "\n")
    say(f"report: {folder / 'report.html'}")
    return 0 if shop.lost == 0 and fewest >= COPIES else 1


@contextlib.contextmanager
def collecting(cluster: DemoCluster, root: Path) -> Iterator[None]:
    """The sidecar at work."""
    directories = [str(directory) for directory in cluster.telemetry]
    sidecar = subprocess.Popen(
        [sys.executable, "-m", "spark_ops", "collect", *directories, "--out", str(root), "--flush", "10s"],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        sidecar.terminate()
        sidecar.wait(60)


@contextlib.contextmanager
def watching(cluster: DemoCluster) -> Iterator[dict[str, int]]:
    """The fewest synchronised copies that each queue has had, looked at four times a second."""
    fewest: dict[str, int] = {}
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.25):
            with contextlib.suppress(OSError, RuntimeError):
                for queue in cluster.queues():
                    copies = 1 + len(queue.get("synchronised_slave_nodes") or ())
                    fewest[queue["name"]] = min(copies, fewest.get(queue["name"], copies))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield fewest
    finally:
        is_over.set()
        thread.join(30)


def spark_ops(*words: object, may_find: bool = False) -> None:
    """Run a command of spark-ops. may_find: 1, findings, and 3, too little known, are no codes to stop at.

    Raises: RuntimeError.
    """
    told = [str(word) for word in words]
    begun = time.monotonic()
    code = subprocess.call([sys.executable, "-m", "spark_ops", *told])
    say(f"spark-ops {told[0]} took {time.monotonic() - begun:.1f} s")
    if code not in ((0, 1, 3) if may_find else (0,)):
        raise RuntimeError(f"spark-ops {' '.join(told)} ended with {code}")


def wait(seconds: float) -> None:
    """Let the load run."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(1.0, left))


def say(text: str) -> None:
    """A line of the story."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
