"""This module reads the dashboard of Fluffle's own metrics, and lists the metrics that it uses."""

import json
from typing import Any

from tests.kit.server_process import ROOT

FILE = ROOT / "deploy" / "grafana" / "fluffle.json"


def queries() -> list[str]:
    document: dict[str, Any] = json.loads(FILE.read_text())
    return [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
