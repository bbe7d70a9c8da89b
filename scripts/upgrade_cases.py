"""The operations that `upgrade.py` interrupts: each kind, at each of its steps.

A case prepares a server on a host, requests an operation, and says at which step of the journal the old
build is killed and how upstream would end the operation. upgrade_hosts.py says what holds it there.
"""

from chaos_compute import COMPUTE, HOST

VERIFY = "VERIFY_RESIZE"
OFFLOADED = "SHELVED_OFFLOADED"
PAUSE, SUSPEND, STOP, RESCUE = {"pause": None}, {"suspend": None}, {"os-stop": None}, {"rescue": {}}
SHELVE, OFFLOAD, UNSHELVE = {"shelve": None}, {"shelveOffload": None}, {"unshelve": None}
DELETE, REVERT = {"forceDelete": None}, {"revertResize": None}
IMAGE = {"createImage": {"name": "upgrade"}}
BACKUP = {"createBackup": {"name": "upgrade backup", "backup_type": "daily", "rotation": 1}}


def migrate(host):
    return {"migrate": {"host": host}}


def live(host):
    return {"os-migrateLive": {"host": host, "block_migration": "auto"}}


def evacuate(host):
    return {"evacuate": {"host": host}}


def unshelve(host):
    return {"unshelve": {"host": host}}


class Case:
    """A server, the requests that prepare it, the interrupted one, and its end.

    `host`      the server's host before the request
    `held`      kind and step of the open operation; the kind alone if the operation ends immediately
    `ends`      the server's final status and, if it is not `host`, its final host; `a|b` allows either
    `outcome`   the outcome of the operation
    `kind`      the flavor
    `when`      the moment of the request
    """

    def __init__(self, name, ask, held, ends, host="still", before=(), outcome="done", kind=None, when="last"):
        self.name, self.ask, self.held, self.host = name, ask, held, host
        self.before, self.outcome, self.kind, self.when = before, outcome, kind, when
        self.status, _, there = ends.partition(" on ")
        self.ends_on = there or host
        self.server = self.request = self.image = None

    def creates(self):
        """True if the request creates the server."""
        return self.ask is create

    def body(self, client):
        return self.ask(client, self) if callable(self.ask) else self.ask


def resize(host):
    """A resize to the flavor that only this host supports."""
    return lambda client, case: {"resize": {"flavorRef": client.flavors[f"only {host}"]}}


def rebuild(client, case):
    return {"rebuild": {"imageRef": client.other_image, "name": case.name}}


def create(client, case):
    """The body of the server; `upgrade.py` posts it to the collection."""
    return client.server(case)


def undo(name, ask, kind, status, before=()):
    """A change that the host `mute` could not make, and whose rollback it has not received."""
    return Case(f"{name}, failed", ask, f"{kind} undo", status, "mute", before, "failed", when="before mute")


def in_place():
    """Operations on a host where each step takes an hour."""
    reboot = {"reboot": {"type": "SOFT"}}
    return [
        Case("create", create, "create spawn", "ACTIVE"),
        Case("delete", DELETE, "delete destroy", "gone"),
        Case("delete of a building server", create, "delete destroy", "gone", when="deleted at once"),
        Case("soft delete", "DELETE", "delete soft", "SOFT_DELETED"),
        Case("restore", {"restore": None}, "restore settle", "ACTIVE", before=["DELETE"]),
        Case("start", {"os-start": None}, "start settle", "ACTIVE", before=[STOP]),
        Case("stop", STOP, "stop settle", "SHUTOFF"),
        Case("soft reboot", reboot, "reboot settle", "ACTIVE"),
        Case("hard reboot", {"reboot": {"type": "HARD"}}, "reboot settle", "ACTIVE"),
        Case("pause", PAUSE, "pause settle", "PAUSED"),
        Case("unpause", {"unpause": None}, "unpause settle", "ACTIVE", before=[PAUSE]),
        Case("suspend", SUSPEND, "suspend settle", "SUSPENDED"),
        Case("resume", {"resume": None}, "resume settle", "ACTIVE", before=[SUSPEND]),
        Case("rescue", RESCUE, "rescue settle", "RESCUE"),
        Case("unrescue", {"unrescue": None}, "unrescue settle", "ACTIVE", before=[RESCUE]),
        Case("rebuild", rebuild, "rebuild settle", "ACTIVE"),
        Case("image", IMAGE, "createImage settle", "ACTIVE"),
        Case("backup", BACKUP, "createBackup settle", "ACTIVE"),
        Case("crash dump", {"trigger_crash_dump": None}, "trigger_crash_dump settle", "ACTIVE"),
        Case("shelve", SHELVE, "shelve settle", f"{OFFLOADED} on None"),
        Case("unshelve", UNSHELVE, "unshelve settle", "ACTIVE", before=[SHELVE]),
        Case("unshelve of an offloaded server", unshelve("still"), "unshelve unshelve", "ACTIVE",
             before=[SHELVE, OFFLOAD]),
        Case("lock", {"lock": None}, "lock", "ACTIVE"),
        Case("reset", {"os-resetState": {"state": "error"}}, "resetState", "ERROR"),
        Case("attach", "attach", "attach_interface", "ACTIVE"),
        Case("detach", "detach", "detach_interface", "ACTIVE"),
        Case("idle", None, "", "ACTIVE"),
        Case("shelved", None, "", "SHELVED", before=[SHELVE]),
        Case("resized", None, "", f"{VERIFY} on quick", before=[migrate("quick")]),
    ]


def failed():
    """Operations that failed on the host `mute`, which receives nothing afterwards."""
    return [
        Case("create, failed", create, "create clear", "ERROR on None", "mute", outcome="failed",
             when="before mute"),
        undo("pause", PAUSE, "pause", "ACTIVE"),
        undo("unpause", {"unpause": None}, "unpause", "PAUSED", [PAUSE]),
        undo("suspend", SUSPEND, "suspend", "ACTIVE"),
        undo("resume", {"resume": None}, "resume", "SUSPENDED", [SUSPEND]),
        undo("rescue", RESCUE, "rescue", "ACTIVE"),
        undo("image", IMAGE, "createImage", "ACTIVE"),
        undo("crash dump", {"trigger_crash_dump": None}, "trigger_crash_dump", "ACTIVE"),
        undo("shelve", SHELVE, "shelve", "ACTIVE"),
        Case("shelve, offloading", SHELVE, "shelve clear", f"{OFFLOADED} on None", "mute",
             when="before mute"),
        Case("offload", OFFLOAD, "shelveOffload clear", f"{OFFLOADED} on None", "gone", [SHELVE]),
        Case("unshelve, failed", unshelve("mute"), "unshelve clear_unshelve", f"{OFFLOADED} on None",
             "quick", [SHELVE, OFFLOAD], "failed", when="before mute"),
    ]


def cold():
    """Moves of a guest that is shut off during the move."""
    return [
        Case("migrate, source", migrate("quick"), "migrate stop_source", f"{VERIFY} on quick"),
        Case("migrate, destination", migrate("still"), "migrate make_dest", f"{VERIFY} on still", "quick"),
        Case("migrate, failed", migrate("mute"), "migrate drop_dest", "ACTIVE", "quick", outcome="failed",
             when="before mute"),
        Case("migrate, going back", migrate("failing"), "migrate restore", "ACTIVE", "waking",
             outcome="failed"),
        Case("resize, source", resize("quick"), "resize stop_source", f"{VERIFY} on quick", kind="vgpu"),
        Case("resize, destination", resize("still"), "resize make_dest", f"{VERIFY} on still", "quick",
             kind="vgpu"),
        Case("resize, failed", resize("mute"), "resize drop_dest", "ACTIVE", "quick", outcome="failed",
             kind="vgpu", when="before mute"),
        Case("resize, going back", resize("failing"), "resize restore", "ACTIVE", "waking",
             outcome="failed", kind="vgpu"),
        Case("revert, destination", REVERT, "revertResize drop_dest", "ACTIVE", "quick", [resize("still")],
             kind="vgpu"),
        Case("revert, source", REVERT, "revertResize restore", "ACTIVE", "waking", [migrate("quick")]),
        Case("confirm", {"confirmResize": None}, "confirmResize", "ACTIVE on quick", "gone",
             [resize("quick")], kind="vgpu"),
        Case("evacuate", evacuate("still"), "evacuate make_dest", "ACTIVE on still", "dead"),
        Case("evacuate, failed", evacuate("mute"), "evacuate drop_dest", "ACTIVE", "dead",
             outcome="failed", when="before mute"),
    ]


def running():
    """Live migrations."""
    return [
        Case("live, transfer", live("quick"), "live-migration transfer", "ACTIVE on quick", "sender"),
        Case("live, paused", live("quick"), "live-migration transfer", "PAUSED on quick", "sender2", [PAUSE]),
        Case("live, queued", live("quick"), "live-migration queued", "ACTIVE on quick", "sender",
             when="after the others"),
        Case("live, preparing", live("still"), "live-migration receive", "ACTIVE on still", "quick2"),
        Case("live, arriving", live("landing"), "live-migration arrive", "ACTIVE on landing", "quick3"),
        Case("live, failed", live("mute"), "live-migration drop_dest", "ACTIVE", "quick4", outcome="failed",
             when="before mute"),
        Case("live, aborted", live("quick"), "live-migration abort", "ACTIVE", "leaver", outcome="failed"),
        Case("live, both hosts lost", live("shore"), "live-migration find", "ACTIVE on ferry|shore", "ferry",
             outcome="failed|done"),
        Case("live, guest lost", live("quick"), "live-migration restore", "ACTIVE", "loser",
             outcome="failed"),
    ]


def cases():
    """All cases; those without a flavor alternate between the kinds of device."""
    found = in_place() + failed() + cold() + running()
    kinds = ["vgpu", "function", "plain", "profile", "test"]
    for number, case in enumerate(found):
        movable = case.held.startswith("live-migration")
        case.kind = case.kind or ("vgpu" if movable else kinds[number % len(kinds)])
    return found


def ended(case, row):
    """The difference from upstream's end of the operation, in words; nothing if there is none."""
    if case.status == "gone":
        return f"it is {row['status']}, not deleted" if row else None
    if row is None:
        return "it is lost"
    status, host, task = row["status"], str(row[HOST]), row.get("OS-EXT-STS:task_state")
    if status == case.status and host in case.ends_on.split("|") and task is None:
        return None
    return f"it is {status} on {host} with the task {task}, expected {case.status} on {case.ends_on}"


def path(case):
    return f"{COMPUTE}/servers/{case.server}"
