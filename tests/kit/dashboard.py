"""The dashboard for our own metrics: its file and what it asks for."""

import json
from typing import Any

from tests.kit.server_process import ROOT

FILE = ROOT / "deploy" / "grafana" / "fluffle.json"


def queries() -> list[str]:
    document: dict[str, Any] = json.loads(FILE.read_text())
    return [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
