"""The commands of `rabbitmq-plugins` show and change which of RabbitMQ's plug-ins, whose work the node does, are on.

They read and write the file of enabled plug-ins, as RabbitMQ's do; a running node is asked for its path and plug-ins.
Plug-ins with exchange types, of packages too, are enabled and disabled on all nodes at once; any other change is in
effect once the node starts again. Source: management §3.2; RabbitMQ 3.10.8's output.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from node.cli.ctl.command import Call, Command, CtlSession, Failed, NotHealthy, Refused
from node.cli.ctl.formats import Outcome, Report
from node.cli.ctl.plugin_template import new_plugin
from node.config.plugins import DEFAULT, FOR_ALL_NODES, parse, render, whole_name
from node.config.plugins import PLUGINS as OURS
from node.config.plugins import with_needed as with_ours_needed
from node.io.control import ControlError
from node.operations.operation import EX_SOFTWARE, EX_USAGE, PLUGINS
from node.version import COMPATIBLE_VERSION

if TYPE_CHECKING:
    from node.io.plugin_packages import PackagedPlugin

_DESCRIPTIONS: Final = {
    "rabbitmq_auth_backend_http": "Authentication and authorisation by a web service",
    "rabbitmq_consistent_hash_exchange": "Exchange type x-consistent-hash",
    "rabbitmq_federation": "Exchanges and queues that get messages from other brokers",
    "rabbitmq_federation_management": "Federation in the HTTP API and the web UI",
    "rabbitmq_random_exchange": "Exchange types x-random and x-local-random",
    "rabbitmq_sharding": "Exchange type x-modulus-hash",
    "rabbitmq_shovel": "Shovels, which move messages from one broker to another",
    "rabbitmq_shovel_management": "Shovels in the HTTP API and the web UI",
    "rabbitmq_stomp": "STOMP 1.0, 1.1 and 1.2",
    "rabbitmq_mqtt": "MQTT 3.1, 3.1.1 and 5.0",
    "rabbitmq_web_mqtt": "MQTT over WebSocket",
    "rabbitmq_management": "HTTP API and web UI",
    "rabbitmq_management_agent": "Statistics of a node",
    "rabbitmq_prometheus": "Metrics for Prometheus",
    "rabbitmq_web_dispatch": "HTTP listeners",
    "rabbitmq_web_stomp": "STOMP over WebSocket",
}
FILE_NAME: Final = "enabled_plugins"


@cache
def packages() -> "Mapping[str, PackagedPlugin]":
    """Return the plug-ins of other packages that are installed here, by name."""
    from node.io.plugin_packages import installed_plugins

    return installed_plugins()


def known() -> dict[str, tuple[str, ...]]:
    """Return the plug-ins that can be enabled, and what each needs."""
    return {**OURS, **dict.fromkeys(packages(), ())}


def with_needed(enabled: Iterable[str]) -> list[str]:
    """Return the enabled plug-ins that we have, and those that they need, sorted."""
    names = list(enabled)
    return sorted({*with_ours_needed(names), *(name for name in names if name in packages())})


def _is_for_all_nodes(plugin: str) -> bool:
    return plugin in FOR_ALL_NODES or plugin in packages()


class State(NamedTuple):
    """The state of the plug-ins.   path: of the file.   explicit: enabled by it.   running: None if the node cannot
    be asked.
    """

    path: str
    explicit: tuple[str, ...]
    running: tuple[str, ...] | None


def _state(call: Call, session: CtlSession) -> State:
    """Read the state from the node and the file. Raises: Failed."""
    if call.line.is_set("offline") and call.line.is_set("online"):
        raise Failed(EX_USAGE, "Cannot set both online and offline")
    running = None
    path = session.environ.get("RABBITMQ_ENABLED_PLUGINS_FILE")
    if not call.line.is_set("offline"):
        try:
            found = session.ask("plugins")
            running, path = tuple(found["running"]), found["file"] or path
        except (ControlError, NotHealthy) as error:
            if call.line.is_set("online"):
                raise NotHealthy(f"node '{call.node}' cannot be asked: {error}") from None
    if not path:
        path = os.path.join(os.path.dirname(session.data_dir.rstrip("/")), FILE_NAME)
    try:
        with open(path, "rb") as file:
            return State(path, parse(file.read()), running)
    except FileNotFoundError:
        return State(path, DEFAULT, running)
    except (OSError, ValueError) as error:
        raise NotHealthy(f"{path} cannot be read: {error}") from None


def _write(path: str, names: Iterable[str]) -> None:
    """Write the file of enabled plug-ins. Raises: Failed."""
    try:
        fd, new = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=".")
        with open(fd, "wb") as file:
            file.write(render(names))
        os.chmod(new, 0o644)
        os.replace(new, path)
    except OSError as error:
        raise NotHealthy(f"{path} cannot be written: {error.strerror}") from None


# --- list ---


def _pattern(call: Call) -> str:
    return call.words[0] if call.words else ".*"


def _list(call: Call, session: CtlSession) -> Outcome:
    is_verbose, is_minimal = call.line.is_set("verbose"), call.line.is_set("minimal")
    if is_verbose and is_minimal:
        raise Failed(EX_USAGE, "Cannot set both verbose and minimal")
    try:
        pattern = re.compile(_pattern(call))
    except re.error as error:
        raise Failed(EX_SOFTWARE, f"the pattern is invalid: {error}") from None
    state = _state(call, session)
    rows = []
    for name in sorted({*known(), *state.explicit}):
        kind = _kind(name, state)
        only = call.line.switches
        is_wanted = kind == "enabled" or (kind == "implicit" and not only.get("enabled"))
        if (only.get("enabled") or only.get("implicitly-enabled")) and not is_wanted:
            continue
        if pattern.search(name):
            is_running = name in (state.running or ())
            rows.append({"name": name, "enabled": kind, "running": is_running})
    kind_of_format = "minimal" if is_minimal else "verbose" if is_verbose else "normal"
    value = {
        "status": "running" if state.running is not None else "node_down",
        "format": kind_of_format,
        "plugins": [
            {"version": list(map(ord, _version(str(row["name"])))), "running_version": None, **row}
            for row in rows
        ],
    }
    names = [str(row["name"]) for row in rows]
    text = "\n".join(names) if is_minimal else _listed(call, state, rows, is_verbose=is_verbose)
    return Report(value, text, is_blank=not text)


def _kind(name: str, state: State) -> str:
    if name in state.explicit:
        return "enabled"
    return "implicit" if name in with_needed(state.explicit) else "not_enabled"


_MARKS: Final = {"enabled": "E", "implicit": "e", "not_enabled": " "}


def _listed(call: Call, state: State, rows: list[dict[str, Any]], *, is_verbose: bool) -> str:
    lines = []
    if not call.line.is_set("silent"):
        status = f"[failed to contact {call.node} - status not shown]"
        if state.running is not None:
            status = f"* = running on {call.node}"
        lines = [
            " Configured: E = explicitly enabled; e = implicitly enabled",
            f" | Status: {status}",
            " |/",
        ]
    width = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        mark = f"[{_MARKS[row['enabled']]}{'*' if row['running'] else ' '}]"
        if not is_verbose:
            lines.append(f"{mark} {row['name']:<{width}} {_version(row['name'])}".rstrip())
            continue
        needed = ",".join(OURS.get(row["name"], ()))
        lines += [
            f"{mark} {row['name']}",
            f"     Version:     \t{_version(row['name'])}",
            f"     Dependencies:\t[{needed}]",
            f"     Description: \t{_description(row['name'])}",
        ]
    return "\n".join(lines)


def _version(plugin: str) -> str:
    return packages()[plugin].version if plugin in packages() else COMPATIBLE_VERSION


def _description(plugin: str) -> str:
    return packages()[plugin].description if plugin in packages() else _DESCRIPTIONS.get(plugin, "")


# --- changes ---


def _names(call: Call) -> list[str]:
    names = [name for word in call.words for name in word.split(",") if name]
    return [name if name in packages() else whole_name(name) for name in names]


def _check_change(call: Call) -> dict[str, Any]:
    if not call.words and not call.line.is_set("all"):
        raise Refused("not enough arguments.")
    if call.words and call.line.is_set("all"):
        raise Refused('"Cannot set both --all and a list of plugins"')
    return {}


def _known(names: list[str]) -> list[str]:
    """Return the names. Raises: Failed for a plug-in whose work the node does not do."""
    unknown = [name for name in names if name not in known()]
    if unknown:
        shown = ", ".join(f":{name}" for name in unknown)
        raise Failed(EX_SOFTWARE, f"{{:plugins_not_found, [{shown}]}}")
    return names


def _enable(call: Call, session: CtlSession) -> Outcome:
    names = list(known()) if call.line.is_set("all") else _known(_names(call))
    state = _state(call, session)
    return _change(call, session, state, (*state.explicit, *names), verb="enabled")


def _disable(call: Call, session: CtlSession) -> Outcome:
    state = _state(call, session)
    names = set(_names(call))
    # A plug-in that needs a disabled one is disabled, too.
    names.update(name for name, needed in OURS.items() if names.intersection(needed))
    left = [] if call.line.is_set("all") else [name for name in state.explicit if name not in names]
    return _change(call, session, state, left, verb="disabled")


def _set(call: Call, session: CtlSession) -> Outcome:
    return _change(call, session, _state(call, session), _known(_names(call)), verb="set")


def _change(call: Call, session: CtlSession, state: State, wanted: Iterable[str], *, verb: str) -> Outcome:
    explicit = tuple(dict.fromkeys(wanted))
    before, after = with_needed(state.explicit), with_needed(explicit)
    changed = sorted(set(before).symmetric_difference(after))
    started, stopped, running = _apply(session, state, before, after)
    if set(explicit) != set(state.explicit):
        _write(state.path, sorted(explicit))
    lines = [*_configured(after), f"Applying plugin configuration to {call.node}..."]
    is_offline = running is None or any(
        (name in running) != (name in after) for name in changed or {*running, *after}
    )
    if not changed and not is_offline:
        lines.append("nothing to do." if verb == "set" else "Plugin configuration unchanged.")
    elif not changed:
        lines += ["Plugin configuration unchanged."]
    else:
        shown = "enabled" if set(after) > set(before) else "disabled"
        lines += [f"The following plugins have been {shown}:", *(f"  {name}" for name in changed), ""]
        lines += [f"set {len(after)} plugins."] if is_offline else _at_once(started, stopped)
    if is_offline and (changed or state.running is not None):
        lines.append("Offline change; changes will take effect at broker restart.")
    mode = "offline" if is_offline else "online"
    value = {"mode": mode, "set": after, "started": started, "stopped": stopped}
    if verb != "set":
        value[verb] = changed
    return Report(value, "\n".join(lines), json_text=f"[\n{_dumps(after)}\n,{_dumps(value)}\n]")


def _apply(
    session: CtlSession, state: State, before: list[str], after: list[str]
) -> tuple[list[str], list[str], list[str] | None]:
    """Have a running node enable and disable what is for all nodes, before the file is written.

    Returns: the plug-ins that were started, those that were stopped, and those that run then.
    Raises: Failed, as for a plug-in whose exchange types are in use; then the file stays as it was.
    """
    if state.running is None:
        return [], [], None
    running = set(state.running)
    for_all = [name for name in sorted({*before, *after, *running}) if _is_for_all_nodes(name)]
    stopped = [name for name in for_all if name in running and name in before and name not in after]
    started = [name for name in for_all if name not in running and name in after]
    try:
        for name in stopped:
            session.ask("disable_plugin", {"plugin": name})
        for name in started:
            session.ask("enable_plugin", {"plugin": name})
    except ControlError as error:
        raise Failed(error.exit_code, error.text) from None
    return started, stopped, sorted(running.difference(stopped).union(started))


def _at_once(started: list[str], stopped: list[str]) -> list[str]:
    """Return what RabbitMQ says of changes that are in effect."""
    counts = (("started", started), ("stopped", stopped))
    return [f"{verb} {len(names)} plugins." for verb, names in counts if names]


def _configured(names: list[str]) -> list[str]:
    if not names:
        return ["All plugins have been disabled."]
    return ["The following plugins have been configured:", *(f"  {name}" for name in names)]


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


# --- questions ---


def _is_enabled(call: Call, session: CtlSession) -> Outcome:
    names, state = _names(call), _state(call, session)
    is_offline = call.line.is_set("offline")
    on = with_needed(state.explicit) if is_offline else list(state.running or ())
    where = "" if is_offline else f" on node {call.node}"
    subject = f"Plugin {names[0]} is" if len(names) == 1 else f"Plugins {', '.join(names)} are"
    missing = [name for name in names if name not in on]
    if not missing:
        text = f"{subject} enabled{where}"
        return Report({"result": "ok", "message": text}, text)
    subject = f"Plugin {missing[0]} is" if len(missing) == 1 else f"Plugins {', '.join(missing)} are"
    text = f"{subject} not enabled{where}. Enabled plugins and dependencies: {', '.join(sorted(on))}"
    raise NotHealthy(text, {"result": "error", "message": text})


def _banner_of_question(call: Call) -> str:
    names = _names(call)
    subject = f"plugin {names[0]} is" if len(names) == 1 else f"plugins {', '.join(names)} are"
    if call.line.is_set("offline"):
        return f"Inferring if {subject} from local environment..."
    return f"Asking node {call.node} if {subject} enabled..."


def _new(call: Call, session: CtlSession) -> Outcome:
    """Make the folder of a new plug-in in the working directory; the node is not asked."""
    name = call.words[0]
    try:
        files = new_plugin(name)
        os.mkdir(name)
        for file_name, text in files.items():
            with open(os.path.join(name, file_name), "w", encoding="utf-8") as file:
                file.write(text)
    except ValueError as error:
        raise Failed(EX_USAGE, str(error)) from None
    except OSError as error:
        raise Failed(EX_SOFTWARE, f"{name} cannot be made: {error.strerror}") from None
    text = (
        f"{name} has {', '.join(files)}.\n"
        f"Install it where the node is installed (pip install ./{name}), then: fluffle plugins enable {name}"
    )
    return Report({"name": name, "files": list(files)}, text)


def _directories(call: Call, session: CtlSession) -> Outcome:
    path = _state(call, session).path
    value = {"plugins_dir": "", "plugins_expand_dir": "", "enabled_plugins_file": path}
    text = (
        "Plugin archives directory: (none: plug-ins are parts of the node)\n"
        f"Plugin expansion directory: (none)\nEnabled plugins file: {path}"
    )
    return Report(value, text)


def _banner_of_directories(call: Call) -> str:
    if call.line.is_set("offline"):
        return "Listing plugin directories inferred from local environment..."
    return f"Listing plugin directories used by node {call.node}"


def _banner_of_change(verb: str) -> Any:
    def banner(call: Call) -> str:
        if call.line.is_set("all"):
            return f"{verb} ALL plugins on node {call.node}"
        return "\n".join([f"{verb} plugins on node {call.node}:", *_names(call)])

    return banner


_P: Final = "Plugin Management"
_M: Final = "Monitoring, observability and health checks"
_WHERE: Final = frozenset({"offline", "online"})


def _row(section: str, help_: str, usage: str, perform: Any, banner: Any, **more: Any) -> Command:
    return Command(
        section, help_, usage, perform=perform, banner=banner, tools=PLUGINS, is_local=True, **more
    )


PLUGIN_COMMANDS: Final[dict[str, Command]] = {
    "directories": _row(
        _M,
        "Displays the path of the file of enabled plug-ins",
        "[--offline] [--online]",
        _directories,
        _banner_of_directories,
        options=_WHERE,
    ),
    "disable": _row(
        _P,
        "Disables plug-ins",
        "<plugin1> [ <plugin2>] | --all [--offline] [--online]",
        _disable,
        _banner_of_change("Disabling"),
        arguments=(0, None),
        options=_WHERE | {"all"},
        request=_check_change,
    ),
    "enable": _row(
        _P,
        "Enables plug-ins",
        "<plugin1> [ <plugin2>] | --all [--offline] [--online]",
        _enable,
        _banner_of_change("Enabling"),
        arguments=(0, None),
        options=_WHERE | {"all"},
        request=_check_change,
    ),
    "is_enabled": _row(
        _M,
        "Checks that plug-ins are enabled",
        "<plugin1> [ <plugin2>] [--offline] [--online]",
        _is_enabled,
        _banner_of_question,
        arguments=(1, None),
        options=_WHERE,
    ),
    "list": _row(
        _P,
        "Lists plug-ins and whether they are on",
        "[pattern] [--verbose] [--minimal] [--enabled] [--implicitly-enabled]",
        _list,
        lambda call: f'Listing plugins with pattern "{_pattern(call)}" ...',
        arguments=(0, 1),
        options=frozenset({"verbose", "minimal", "enabled", "implicitly-enabled"}),
        shorts={"v": "verbose", "m": "minimal", "E": "enabled", "e": "implicitly-enabled"},
    ),
    "new": _row(
        _P,
        "Makes the folder of a new plug-in of your own, in the working directory",
        "<name>",
        _new,
        lambda call: f"Making plugin {call.words[0]} ...",
        arguments=(1, 1),
    ),
    "set": _row(
        _P,
        "Enables these plug-ins and disables the others",
        "<plugin1> [ <plugin2>] [--offline] [--online]",
        _set,
        _banner_of_change("Enabling"),
        arguments=(0, None),
        options=_WHERE,
    ),
}
