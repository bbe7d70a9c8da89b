"""Checks what must hold when nothing is in progress, after `chaos.py` has killed processes for a while.

Every answered operation is in the server's history and has ended; a server's state follows from the last
operation that succeeded; every guest has exactly the devices that the ledger assigns to its server, and
every host exactly its guests; images are complete. Files of simulated hosts are read from the hosts'
folders.
"""

import glob
import os
import re
import sqlite3
import subprocess
import time

from chaos_compute import COMPUTE, HOST, IMAGES
from stack import Wrong

# The state that each action leaves when it succeeds.
LEAVES = {
    "create": "ACTIVE", "start": "ACTIVE", "reboot": "ACTIVE", "unpause": "ACTIVE",
    "resume": "ACTIVE", "unrescue": "ACTIVE", "stop": "SHUTOFF", "pause": "PAUSED",
    "suspend": "SUSPENDED", "rescue": "RESCUE", "rebuild": "ACTIVE SHUTOFF",
    "shelve": "SHELVED SHELVED_OFFLOADED", "shelveOffload": "SHELVED_OFFLOADED",
    "unshelve": "ACTIVE", "resize": "VERIFY_RESIZE", "migrate": "VERIFY_RESIZE",
    "confirmResize": "ACTIVE SHUTOFF", "revertResize": "ACTIVE SHUTOFF",
    "live-migration": "ACTIVE PAUSED", "evacuate": "ACTIVE SHUTOFF", "resetState": "ACTIVE ERROR",
    "delete": "SOFT_DELETED", "restore": "ACTIVE SHUTOFF PAUSED SUSPENDED",
}
# Valid reasons for a server in ERROR: no room, or an injected failure of a host.
REASONS = re.compile(r"No valid host|simulated failure|Exceeded maximum number|went down|"
                     r"mediated device|create_mdev")
HERE = {"ACTIVE", "SHUTOFF", "PAUSED", "SUSPENDED", "RESCUE", "VERIFY_RESIZE", "SHELVED",
        "SOFT_DELETED"}
ROTATION = 2


# The devices that the ledger assigns to servers on hosts, as a guest's definition names them.
OWNED = """SELECT a.host, a.server_id,
    CASE WHEN h.attach_type = 'MDEV' THEN h.uuid ELSE h.address END
    FROM arqs a JOIN attach_handles h ON h.arq_id = a.uuid WHERE a.internal = 1"""
OPEN = "SELECT kind, step, subject FROM operations WHERE outcome = 'open'"
HISTORY = "SELECT subject, kind, request_id, outcome FROM operations ORDER BY created_at DESC"
DOCUMENTS = "SELECT host, server_id FROM documents"
# A resize waits for its confirmation until it is confirmed or reverted, also after a reset of the state.
WAITING = "SELECT source_host, server_id FROM moves WHERE open_server IS NOT NULL AND status = 'finished'"


class Ledger:
    """The database, read directly: the API shows only the requests of device profiles."""

    def __init__(self, state, url):
        self.file, self.url = os.path.join(state, "kilonova.db"), url
        self.psql = os.path.join(os.environ.get("KILONOVA_PG_BIN", "/usr/lib/postgresql/15/bin"),
                                 "psql")

    def query(self, sql):
        """The rows, as texts."""
        if self.url:
            output = subprocess.run([self.psql, "-X", "-A", "-t", "-d", self.url, "-c", sql],
                                  stdout=subprocess.PIPE, text=True, check=True).stdout
            return [tuple(line.split("|")) for line in output.splitlines()]
        database = sqlite3.connect(f"file:{self.file}?mode=ro", uri=True, timeout=10)
        try:
            return [tuple(map(str, row)) for row in database.execute(sql)]
        finally:
            database.close()


def histories(ledger):
    """(action, request, outcome) of each server's operations, newest first."""
    found = {}
    for server, *row in ledger.query(HISTORY):
        found.setdefault(server, []).append(tuple(row))
    return found


def check(api, world, servers, ledger, folders):
    """Runs all checks of this file; waits for what hosts still have to remove."""
    wait_until(lambda: [f"an operation is open: {row}" for row in ledger.query(OPEN)])
    wait_until(lambda: guests(api, ledger, folders, world.reset))
    actions = histories(ledger)
    records(world, servers, actions)
    images(api, world, actions)
    for server, number in list(world.marks.items()):
        if server in servers:
            seen = int(servers[server]["metadata"].get("chaos", 0))
            if seen < number:
                raise Wrong(f"the metadata of {server} is {seen}; {number} was answered later")
        else:
            del world.marks[server]


def wait_until(complaints, seconds=20):
    """Waits until there are no complaints."""
    deadline = time.monotonic() + seconds
    while found := complaints():
        if time.monotonic() > deadline:
            raise Wrong(f"{len(found)} checks fail at rest: {found[0]}")
        time.sleep(0.1)


def records(world, servers, actions):
    """Every answered operation is recorded, has ended, and left the right state."""
    answers, world.answers = world.answers, []
    for name, server, request in answers:
        ends = [end for _, asked_by, end in actions[server] if asked_by == request]
        # A second delete is not recorded, nor is a lock of a locked server by its owner.
        if not ends and not (name in ("delete", "lock") and any(row[0] == name for row in actions[server])):
            raise Wrong(f"{name} of {server} was answered ({request}) but is not recorded")
        for end in ends:
            world.note(name, {"done": "finished"}.get(end, end))
    for server, row in servers.items():
        left(server, row, actions[server])
    errors = [row for row in servers.values() if row["status"] == "ERROR"]
    for row in errors:
        # The host's own message is in the details, for administrators.
        fault = row.get("fault") or {}
        why = f"{fault.get('message', '')} {fault.get('details', '')}".strip()
        worked = [kind for kind, _, end in actions[row["id"]] if kind in LEAVES and end == "done"]
        if not REASONS.search(why) and worked[:1] != ["resetState"]:
            raise Wrong(f"server {row['id']} is in ERROR without a valid reason: {why}")
    if len(errors) > 5 + len(servers) / 2:
        raise Wrong(f"{len(errors)} of {len(servers)} servers are in ERROR")


def left(server, row, actions):
    """The newest action that succeeded determines the server's state, unless a newer one failed."""
    for kind, _, end in actions:
        if end != "done":
            return
        if kind in LEAVES:
            # An operator may reset a server that never had a host to active.
            wrong = row[HOST] is None and row["status"] in HERE and kind != "resetState"
            if wrong or row["status"] not in LEAVES[kind].split():
                last = ", ".join(kind for kind, _, _ in actions[:4])
                raise Wrong(f"server {server} is {row['status']} on {row[HOST]} after {last}")
            return


def guests(api, ledger, folders, reset):
    """Complaints about hosts' guests and devices. The guest of a server whose state an operator has set may be in
    any state."""
    servers = api.servers()
    owned = {}
    for host, server, device in ledger.query(OWNED):
        owned.setdefault((host, server), set()).add(device)
    waiting = {(host, server) for host, server in ledger.query(WAITING)}
    found, complaints = domains(folders), []
    for server, row in servers.items():
        if row["status"] not in HERE or row[HOST] is None:
            continue
        key = (row[HOST], server)
        has, should = found.get(key), owned.get(key, set())
        # After a resize on the same host, the old side is kept for a revert.
        two = key in waiting
        if has is None or not (has <= should if two else has == should):
            complaints.append(f"{server}, {row['status']} on {key[0]}, has the devices {has}, "
                              f"expected {should}")
    for host, server in found:
        row = servers.get(server)
        here = row and (row[HOST] == host or (host, server) in waiting or row["status"] == "ERROR")
        if not here:
            complaints.append(f"{host} has a guest of {server}, which is "
                              f"{row and (row['status'], row[HOST])}")
    running = {key for key in named(folders, "running")}
    for host, server in running:
        row = servers.get(server)
        if row and server not in reset and row["status"] in ("SHUTOFF", "SUSPENDED", "SHELVED", "SOFT_DELETED"):
            complaints.append(f"{server} runs on {host}, but is {row['status']}")
    for server, row in servers.items():
        if (row["status"] in ("ACTIVE", "PAUSED", "RESCUE") and row[HOST] and server not in reset
                and (row[HOST], server) not in running):
            complaints.append(f"{server} is {row['status']}, but does not run on {row[HOST]}")
    return complaints


def named(folders, folder):
    """(host, file name) of the files in a folder of each host, except `spare.new`."""
    for base in folders:
        for path in glob.glob(f"{base}/**/{folder}/*", recursive=True):
            if os.path.basename(path) != "spare.new":
                yield os.path.basename(os.path.dirname(os.path.dirname(path))), os.path.basename(path)


def domains(folders):
    """The devices of each guest, by host and server."""
    found = {}
    for base in folders:
        for path in glob.glob(f"{base}/**/domains/*.xml", recursive=True):
            host = os.path.basename(os.path.dirname(os.path.dirname(path)))
            try:
                with open(path, encoding="utf-8") as file:
                    text = file.read()
            except FileNotFoundError:
                continue
            devices = re.findall(r"<kilonova:device kind='(\w+)' (?:uuid|address)='([^']*)'", text)
            found[host, os.path.basename(path)[:-4]] = {name for _, name in devices}
    return found


def all_images(api):
    found, path = {}, f"{IMAGES}?limit=1000"
    while path:
        answer = api.expect(200, "GET", path)
        found.update((image["id"], image) for image in answer["images"])
        path = answer.get("next")
        path = path and (path if path.startswith("/image") else f"/image{path}")
    return found


def images(api, world, actions):
    """Images are complete, and every successful operation left one."""
    found = all_images(api)
    for image in found.values():
        if image["status"] != "active":
            raise Wrong(f"image {image['id']} ({image['name']}) is {image['status']} at rest")
    daily = {}
    for image in found.values():
        if image.get("backup_type") == "daily":
            daily[image.get("instance_uuid")] = daily.get(image.get("instance_uuid"), 0) + 1
    most = max(daily.values(), default=0)
    if most > ROTATION:
        raise Wrong(f"a server has {most} daily backups; at most {ROTATION} should be kept")
    for image, (name, server, request) in list(world.kept.items()):
        if image in found:
            continue
        del world.kept[image]
        ends = [end for _, asked_by, end in actions[server] if asked_by == request]
        if name == "image" and "done" in ends:
            raise Wrong(f"{name} of {server} succeeded, but its image {image} does not exist")


def nothing_left(api, stage, ledger, folders, state):
    """With all servers and their images deleted, no file remains."""
    for image in all_images(api):
        if image != stage.image:
            api.expect(204, "DELETE", f"{IMAGES}/{image}")
    kinds = ("domains", "running", "saved", "incoming", "left", "mdevs", "snapshots", "notes")
    wait_until(lambda: [f"{host} has {kind}/{name}" for kind in kinds
                       for host, name in named(folders, kind)])
    wait_until(lambda: [f"the image store has {name}" for name in os.listdir(f"{state}/images")
                       if name != ".cloud" and not name.startswith(stage.image)])
    wait_until(lambda: [str(row) for row in ledger.query(OPEN) + ledger.query(DOCUMENTS)])
