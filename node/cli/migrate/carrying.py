"""Make and remove what carries messages: the user of the shovels, and the shovels."""

from collections.abc import Iterable

from node.cli.migrate.looking import Session
from node.migrate.clients import MOVER
from node.migrate.history import shovel_record, stage_record
from node.migrate.move import Move
from node.migrate.percent import encoded
from node.migrate.shovels import Shovel, is_of_migration, mover_rights
from node.migrate.tables import counted


def make_user(session: Session, vhosts: Iterable[str]) -> bool:
    """Make the user of the shovels at the far end, with rights in these vhosts. Raises: ApiFailed; OSError.

    Returns: True if its password is another one now, so that shovels have to be made again.
    """
    password, is_new = session.state.password()
    far, rights = session.far_api(), mover_rights(session.ends)
    far.put(f"/users/{MOVER}", {"password": password, "tags": ""})
    for vhost in sorted(set(vhosts)):
        far.put(
            f"/permissions/{encoded(vhost)}/{MOVER}",
            {"configure": rights.configure, "write": rights.write, "read": rights.read},
        )
    return is_new


def put_shovels(session: Session, shovels: Iterable[Shovel]) -> int:
    """Make shovels. Returns: their number. Raises: ApiFailed; OSError.

    Each is in the journal before it is made: one that is not there would stay when all are removed, and move messages
    one way while another shovel moves them back.
    """
    password, _ = session.state.password()
    host, number = session.host_api(), 0
    for shovel in shovels:
        session.append(shovel_record(shovel, is_put=True))
        host.put(shovel.path, {"value": shovel.value(session.ends, password)})
        number += 1
    return number


def present_shovels(session: Session) -> set[tuple[str, str]]:
    """Return vhost and name of the migration's shovels that their host has. Raises: ApiFailed."""
    found = session.host_api().get("/parameters/shovel")
    return {
        (str(row.get("vhost")), str(row.get("name")))
        for row in (found if isinstance(found, list) else ())
        if isinstance(row, dict) and is_of_migration(str(row.get("name")))
    }


def shovels_to_put(found: Session, move: Move, is_new: bool) -> list[Shovel]:
    """Return the shovels to make: those that can begin, and those that should be there and are not, or have another
    password.
    """
    there = set() if is_new else present_shovels(found)
    again = [each for each in move.present_shovels() if (each.vhost, each.name) not in there]
    return [*again, *move.to_begin()]


def start_shovels(found: Session, move: Move, *, is_new: bool) -> None:
    """Make the shovels of the present direction that are missing, and print how many. Raises: ApiFailed; OSError.

    is_new: the shovels' user has another password now.
    """
    direction = found.history.direction
    number = put_shovels(found, shovels_to_put(found, move, is_new))
    if found.history.stage == "planned":
        found.append(stage_record("started", direction))
    made = f"{counted(number, 'shovel')}{' back' if direction == 'back' else ''} made"
    waiting = counted(len(list(move.without_shovel())), "queue")
    print(f"{made}; {waiting} left whose consumers have to leave first")


def remove_shovels(session: Session, shovels: Iterable[Shovel]) -> int:
    """Remove shovels. Messages under way return to their queue. Returns: their number. Raises: ApiFailed; OSError."""
    host, number = session.host_api(), 0
    for shovel in shovels:
        host.delete(shovel.path)
        session.append(shovel_record(shovel, is_put=False))
        number += 1
    return number


def remove_user(session: Session) -> None:
    """Remove the user of the shovels, and its password. Raises: ApiFailed; OSError."""
    session.far_api().delete(f"/users/{MOVER}")
    session.state.forget_password()
