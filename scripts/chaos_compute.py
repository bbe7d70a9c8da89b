"""The operations on servers that `chaos.py` requests, in valid states and sometimes in others, and the
record of the answers.

A thread inspects a server, then requests an operation. The answer must be success or one of the
operation's known refusals; anything else fails the run. chaos_rest.py checks the outcome of everything
that was answered.
"""

import contextlib
import re
import threading
import time

from stack import Gone, Wrong

THREADS = 6
ALIVE = 30          # the load deletes rather than creates when there are more servers
BATCHES = 30        # creates of several before the next check, which finds all their servers
COMPUTE = "/compute/v2.1"
IMAGES = "/image/v2/images"
HOST = "OS-EXT-SRV-ATTR:host"
MOVED = re.compile(r"cannot live-migrate|where the server exists|current host|No valid host")
ANY = "any state"
USUAL = "ACTIVE SHUTOFF PAUSED SUSPENDED"


class Operation:
    """An operation on a server, and the states in which it is valid."""

    def __init__(self, name, when, ask, version="2.90", refused=None):
        self.name, self.when, self.ask, self.version = name, when.split(), ask, version
        self.refused = re.compile(refused) if isinstance(refused, str) else refused

    def fits(self, row, away):
        if "evacuate" in self.name:
            return row.get(HOST) == away
        return self.when == ANY.split() or row["status"] in self.when


def act(name, when, body, **more):
    """An operation by `POST …/action`; a body that is a function gets the load and the server."""
    make = body if callable(body) else lambda load, row: body
    return Operation(name, when, lambda load, row: ("POST", "/action", make(load, row)), **more)


def call(name, when, make, **more):
    return Operation(name, when, make, **more)


def another_host(load, row):
    return load.dice.choice([host for host in load.hosts if host != row.get(HOST)])


def live(load, row, host=None):
    return {"os-migrateLive": {"host": host, "block_migration": "auto"}}


def rebuild(load, row):
    return {"rebuild": {"imageRef": load.image, "name": row["name"]}}


def resize(load, row):
    return {"resize": {"flavorRef": load.dice.choice(load.flavors)}}


def backup(load, row):
    return {"createBackup": {"name": "chaos", "backup_type": "daily", "rotation": 2}}


def metadata(load, row):
    """A number that only grows, so that an older one reveals a lost update."""
    return "POST", "/metadata", {"metadata": {"chaos": str(load.world.number())}}


def tag(load, row):
    return "PUT", f"/tags/chaos{load.dice.randrange(20)}", None


def rename(load, row):
    return "PUT", "", {"server": {"description": f"chaos {load.dice.randrange(1000)}"}}


# Operations with the states in which they are valid; each is requested in invalid states too.
OPERATIONS = [
    act("stop", "ACTIVE", {"os-stop": None}),
    act("start", "SHUTOFF", {"os-start": None}),
    act("soft reboot", "ACTIVE", {"reboot": {"type": "SOFT"}}),
    act("hard reboot", USUAL + " ERROR", {"reboot": {"type": "HARD"}}),
    act("pause", "ACTIVE", {"pause": None}),
    act("unpause", "PAUSED", {"unpause": None}),
    act("suspend", "ACTIVE", {"suspend": None}),
    act("resume", "SUSPENDED", {"resume": None}),
    act("lock", ANY, {"lock": None}),
    act("unlock", ANY, {"unlock": None}),
    act("rescue", "ACTIVE SHUTOFF", {"rescue": {}}),
    act("unrescue", "RESCUE", {"unrescue": None}),
    act("image", USUAL, {"createImage": {"name": "chaos"}}),
    act("backup", USUAL, backup),
    act("crash dump", "ACTIVE PAUSED", {"trigger_crash_dump": None}),
    act("rebuild", "ACTIVE SHUTOFF ERROR", rebuild),
    act("shelve", USUAL, {"shelve": None}),
    act("offload", "SHELVED", {"shelveOffload": None}),
    act("unshelve", "SHELVED SHELVED_OFFLOADED", {"unshelve": None}),
    act("unshelve to zone", "SHELVED_OFFLOADED", version="2.91",
        body=lambda load, row: {"unshelve": {"availability_zone": load.dice.choice(load.zones)}}),
    act("unshelve to host", "SHELVED_OFFLOADED", version="2.91",
        body=lambda load, row: {"unshelve": {"host": another_host(load, row)}}),
    act("resize", "ACTIVE SHUTOFF", resize, refused="instances must change flavor"),
    act("confirm", "VERIFY_RESIZE", {"confirmResize": None}, refused="has not been resized"),
    act("revert", "VERIFY_RESIZE", {"revertResize": None}, refused="has not been resized"),
    act("migrate", "ACTIVE SHUTOFF", {"migrate": None}),
    act("migrate to host", "ACTIVE SHUTOFF", refused=MOVED,
        body=lambda load, row: {"migrate": {"host": another_host(load, row)}}),
    act("live migrate", "ACTIVE PAUSED", live, refused="cannot live-migrate|unavailable at this time"),
    act("live migrate to host", "ACTIVE PAUSED",
        refused="cannot live-migrate|unavailable at this time|current host",
        body=lambda load, row: live(load, row, another_host(load, row))),
    act("evacuate", ANY, {"evacuate": {}}, refused="is still in use"),
    act("evacuate to host", ANY, version="2.95", refused="is still in use|same one",
        body=lambda load, row: {"evacuate": {"host": another_host(load, row)}}),
    act("reset to active", "ERROR", {"os-resetState": {"state": "active"}}),
    act("reset to error", "RESCUE", {"os-resetState": {"state": "error"}}),
    act("restore", "SOFT_DELETED", {"restore": None}),
    call("metadata", ANY, metadata),
    call("tag", ANY, tag),
    call("describe", ANY, rename),
]
SIMPLE = [one for one in OPERATIONS if one.name in ("stop", "start")]
# Operations that do not depend on the state of a server.
OTHERS = ["create", "create several", "delete", "force delete", "abort", "force complete",
          "image delete"]
COLUMNS = ["sent", "answered", "refused", "finished", "failed", "cancelled"]
NO_RECORD = {"metadata", "tag", "describe", "image delete"}


class World:
    """The load's record of the answers it received."""

    def __init__(self, dice, whole):
        self.lock = threading.Lock()
        self.writing = threading.Lock()
        self.dice = dice
        self.whole = whole      # every operation, not only creates, deletes, stops and starts
        self.operations = OPERATIONS if whole else SIMPLE
        self.live = set()       # exists, as far as known, and no delete was sent
        self.leaving = set()    # a delete was sent; its answer is unknown
        self.gone = set()       # a delete was answered
        self.restored = set()   # a restore was sent
        self.reset = set()      # an operator set its state, whatever its guest did
        self.answers = []          # (operation, server, request id) of answers not yet checked
        self.kept = {}          # image: (operation, server, request id)
        self.marks = {}         # server: the last acknowledged number in its metadata
        self.batches = []       # (name, least, most, first id) of creates of several
        self.away = None        # a host that is declared down
        self.last = 0
        names = [one.name for one in self.operations] + OTHERS
        self.table = {name: dict.fromkeys(COLUMNS, 0) for name in names}

    def number(self):
        with self.lock:
            self.last += 1
            return self.last

    def pick(self):
        with self.lock:
            return self.dice.choice(sorted(self.live)) if self.live else None

    def note(self, name, column, count=1):
        with self.lock:
            self.table[name][column] += count

    def total(self, column):
        return sum(row[column] for row in self.table.values())

    def heard(self):
        return self.total("answered") + self.total("refused")

    def print_table(self):
        print(f"  {'operation':22}" + "".join(f"{head:>10}" for head in COLUMNS))
        for name, row in self.table.items():
            if row["sent"]:
                print(f"  {name:22}" + "".join(f"{row[head]:>10}" for head in COLUMNS))
        print(f"  {'all':22}" + "".join(f"{self.total(head):>10}" for head in COLUMNS), flush=True)


class Load:
    """Threads that send requests until the server is gone."""

    def __init__(self, world, api, stage, others):
        self.world, self.dice = world, world.dice
        self.flavors, self.image, self.groups = stage.flavors, stage.image, stage.groups
        self.hosts, self.zones = stage.hosts, stage.zones
        self.over = threading.Event()
        self.wrong = []
        jobs = [(api.clone, self.step)] * (THREADS // 2 if others else THREADS) + others
        self.threads = [threading.Thread(target=self.run, args=job, daemon=True) for job in jobs]
        for thread in self.threads:
            thread.start()

    def run(self, connect, step):
        connection = connect()
        try:
            while not self.over.is_set():
                step(connection)
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001 - raised again by `join`
            self.wrong.append(error)
        finally:
            connection.close()

    def wait(self, answers, seconds):
        """Waits for that many answers, with a time limit, and then a moment longer."""
        deadline = time.monotonic() + 4
        until = self.world.heard() + answers
        while self.world.heard() < until and time.monotonic() < deadline and not self.wrong:
            time.sleep(0.005)
        time.sleep(seconds)

    def join(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            if thread.is_alive():
                raise Wrong("a request has had no answer for 60 s")
        if self.wrong:
            raise self.wrong[0]

    def step(self, connection):
        with self.world.lock:
            count, roll = len(self.world.live), self.dice.random()
        if count < ALIVE / 3 or (roll < 0.2 and count < ALIVE):
            return self.create(connection)
        server = self.world.pick()
        if server is None:
            return None
        if roll > 0.92 or count >= ALIVE * 1.5 or (count >= ALIVE and roll < 0.5):
            return self.delete(connection, server)
        if self.world.whole and 0.2 < roll < 0.23:
            return self.delete_image(connection)
        return self.operate(connection, server)

    def operate(self, connection, server):
        status, _, answer = connection.ask("GET", f"{COMPUTE}/servers/{server}")
        if status == 404:
            return
        if status != 200:
            raise Wrong(f"GET of {server}: unexpected answer {status}: {answer}")
        row = answer["server"]
        away = self.world.away
        fitting = [one for one in self.world.operations if one.fits(row, away)]
        if away and row.get(HOST) == away and self.dice.random() < 0.6:
            fitting = [one for one in fitting if "evacuate" in one.name] or fitting
        if not fitting or self.dice.random() < 0.1:
            fitting = self.world.operations
        one = self.dice.choice(fitting)
        if one.name == "restore":
            with self.world.lock:
                self.world.restored.add(server)
        if one.name.startswith("reset to"):
            with self.world.lock:
                self.world.reset.add(server)
        # Numbers in metadata only grow if they are sent one at a time.
        with self.world.writing if one.name == "metadata" else contextlib.nullcontext():
            method, path, body = one.ask(self, row)
            request, answer = self.ask(connection, one.name, server, method, path, body,
                                       one.version, one.refused)
        if not request:
            return
        if one.name in ("image", "backup"):
            with self.world.lock:
                self.world.kept[answer["image_id"]] = (one.name, server, request)
        elif one.name == "metadata":
            with self.world.lock:
                number = int(body["metadata"]["chaos"])
                self.world.marks[server] = max(number, self.world.marks.get(server, 0))
        elif one.name.startswith("live migrate") and self.dice.random() < 0.6:
            self.meddle(connection, server)

    def ask(self, connection, name, server, method, path, body, version="2.90", refused=None):
        """Sends one request about a server. Returns its request id and answer, or nothing if refused."""
        self.world.note(name, "sent")
        whole = path if server is None else f"{COMPUTE}/servers/{server}{path}"
        status, headers, answer = connection.ask(
            method, whole, body, {"OpenStack-API-Version": f"compute {version}"})
        if status in (404, 409) or (status == 400 and refused and refused.search(str(answer))):
            self.world.note(name, "refused")
            return None, answer
        if not 200 <= status < 300:
            raise Wrong(f"{name} of {server}: unexpected answer {status}: {answer}")
        self.world.note(name, "answered")
        request = headers["x-openstack-request-id"]
        if name not in NO_RECORD and server:
            with self.world.lock:
                self.world.answers.append((name, server, request))
        return request, answer

    def meddle(self, connection, server):
        """Aborts a live migration that has just begun, or forces it to complete."""
        status, _, answer = connection.ask("GET", f"{COMPUTE}/servers/{server}/migrations")
        for one in answer["migrations"] if status == 200 else []:
            path = f"/migrations/{one['id']}"
            words = r"while the migration is in this state|not in progress|not found for instance"
            if self.dice.random() < 0.5:
                self.ask(connection, "abort", server, "DELETE", path, None, refused=re.compile(words))
            else:
                self.ask(connection, "force complete", server, "POST", f"{path}/action",
                         {"force_complete": None}, refused=re.compile(words))

    def create(self, connection):
        number = self.world.number()
        server = {"name": f"chaos{number}", "networks": "none", "imageRef": self.image,
                  "flavorRef": self.dice.choice(self.flavors)}
        body = {"server": server}
        name, least, most = "create", 1, 1
        if self.world.whole and len(self.world.batches) < BATCHES and self.dice.random() < 0.2:
            name, least, most = "create several", self.dice.choice([1, 2]), self.dice.choice([2, 3])
            server |= {"min_count": least, "max_count": most}
        if self.groups and self.dice.random() < 0.2:
            body["os:scheduler_hints"] = {"group": self.dice.choice(self.groups)}
        if most > 1:
            with self.world.lock:
                batch = [server["name"], least, most, None]
                self.world.batches.append(batch)
        request, answer = self.ask(connection, name, None, "POST", f"{COMPUTE}/servers", body)
        if not request:
            raise Wrong(f"a create was refused: {answer}")
        first = answer["server"]["id"]
        with self.world.lock:
            self.world.live.add(first)
            self.world.answers.append((name, first, request))
            if most > 1:
                batch[3] = first

    def delete(self, connection, server):
        with self.world.lock:
            if server not in self.world.live:
                return
            self.world.live.remove(server)
            self.world.leaving.add(server)
        if self.world.whole and self.dice.random() < 0.5:
            request, _ = self.ask(connection, "force delete", server, "POST", "/action",
                                  {"forceDelete": None})
        else:
            request, _ = self.ask(connection, "delete", server, "DELETE", "", None)
        if request:
            with self.world.lock:
                self.world.leaving.discard(server)
                self.world.gone.add(server)

    def delete_image(self, connection):
        with self.world.lock:
            if not self.world.kept:
                return
            image = self.dice.choice(sorted(self.world.kept))
            del self.world.kept[image]
        self.ask(connection, "image delete", None, "DELETE", f"{IMAGES}/{image}", None)
