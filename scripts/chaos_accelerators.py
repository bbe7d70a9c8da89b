"""The additional load of `chaos.py --accelerators`: an unmodified external Nova, and a host whose devices
come and go.

The Nova claims allocations in Placement, and creates, binds, unbinds and deletes accelerator requests
over the v2 API with a user's token and its own service token. The host exists only in the node protocol:
no guest runs there. After each kill, every answer must hold, and a request whose answer was lost must
have been executed completely or not at all.
"""

import concurrent.futures
import os
import re
import time
import uuid

from stack import Api, Wrong

ARQS = "/accelerator/v2/accelerator_requests"
MOST = 24           # instances of the external Nova; above that it deletes
PROFILES = {"chaos-one": 1, "chaos-pair": 2}
HOST = "chaos-reporter"
CARDS = 3
SLOTS = 4

# The states of an instance. In the intermediate ones a request was sent and its answer is unknown.
MADE, BINDING, BOUND, UNBINDING, UNBOUND, LEAVING, GONE = (
    "made", "binding", "bound", "unbinding", "unbound", "leaving", "gone")


class Instance:
    """An instance of the external Nova and its accelerator requests."""

    def __init__(self, arqs):
        self.id = str(uuid.uuid4())
        self.rival = None       # another instance, named by a bind in progress
        self.arqs = arqs
        self.state = MADE
        self.handles = {}       # if bound: the attach handle of each request, as answered


class Nova:
    """The records of the external Nova, and the work of its threads."""

    def __init__(self, dice, lock, user, service):
        self.dice, self.lock, self.user, self.service = dice, lock, user, service
        self.free = []          # instances that no thread uses
        self.busy = set()
        self.places = []        # (host, provider) that a bind may name
        self.requests = {"arq create": 0, "bind": 0, "unbind": 0, "arq delete": 0, "report": 0}
        self.refused = 0
        self.answered = 0
        self.seen = 0           # requests whose lost answers were looked up

    def connect(self, url):
        """A connection with Nova's two tokens."""
        return Speaker(url, self.user, self.service)

    def count(self, verb, status, answer, good, tolerated=()):
        with self.lock:
            self.requests[verb] += 1
            self.answered += 1
            self.refused += status in tolerated
        if status not in good and status not in tolerated:
            raise Wrong(f"{verb}: unexpected answer {status}: {answer}")
        return status in good

    def step(self, api):
        """One operation on one instance."""
        with self.lock:
            roll = self.dice.random()
            few = len(self.free) + len(self.busy) < MOST
            one = None
            if self.free and not (few and roll < 0.35):
                one = self.free.pop(self.dice.randrange(len(self.free)))
                self.busy.add(one)
        if one is None:
            if few:
                self.create(api)
            return
        self.work(api, one, roll, few)
        with self.lock:
            self.busy.discard(one)
            if one.state != GONE:
                self.free.append(one)

    def work(self, api, one, roll, few):
        if one.state in (MADE, UNBOUND) and few and roll < 0.9:
            duel = roll > 0.75 and len(one.arqs) == 1
            self.duel(api, one) if duel else self.bind(api, one)
        elif one.state == BOUND and roll < 0.6:
            self.unbind(api, one)
        else:
            self.delete(api, one)

    def create(self, api):
        profile = self.dice.choice(sorted(PROFILES))
        status, _, answer = api.ask("POST", ARQS, {"device_profile_name": profile})
        self.count("arq create", status, answer, {201})
        one = Instance([arq["uuid"] for arq in answer["arqs"]])
        if len(one.arqs) != PROFILES[profile]:
            raise Wrong(f"{profile} made {len(one.arqs)} requests")
        with self.lock:
            self.free.append(one)

    def claim(self, api, one, provider):
        """Claims allocations as Nova's scheduler does; False if there is no room."""
        body = {"allocations": {provider["uuid"]: {"resources": {provider["class"]: len(one.arqs)}}},
                "project_id": self.user.project, "user_id": self.user.id,
                "consumer_generation": None}
        status, _, answer = api.ask("PUT", f"/placement/allocations/{one.id}", body)
        # 409: full, or the generation changed. 400: the provider is gone with its device.
        if status not in (204, 400, 409):
            raise Wrong(f"claim: unexpected answer {status}: {answer}")
        return status == 204

    @staticmethod
    def drop(api, instance):
        status, _, answer = api.ask("DELETE", f"/placement/allocations/{instance}")
        if status not in (204, 404):
            raise Wrong(f"the allocations of {instance} cannot be deleted: {status} {answer}")

    @staticmethod
    def patch(one, place):
        steps = [("hostname", place["host"]), ("device_rp_uuid", place["uuid"]),
                 ("instance_uuid", one.id)]
        return {arq: [{"path": f"/{path}", "op": "add", "value": value} for path, value in steps]
                for arq in one.arqs}

    def bind(self, api, one):
        place = self.dice.choice(self.places)
        if not self.claim(api, one, place):
            return
        before, one.state = one.state, BINDING
        status, _, answer = api.ask("PATCH", ARQS, self.patch(one, place))
        # 404: the handles are gone with their device, or its provider is.
        if self.count("bind", status, answer, {202}, {404}):
            one.handles = self.look(api, one)
            one.state = BOUND
        else:
            one.state = before
            self.drop(api, one.id)

    def duel(self, api, one):
        """Two clients concurrently bind the same request, for two instances: at most one may succeed."""
        place = self.dice.choice(self.places)
        if not self.claim(api, one, place):
            return
        rival = Instance(one.arqs)
        one.rival = rival.id
        before, one.state = one.state, BINDING
        other = api.clone()
        try:
            answers = both(api, other, [self.patch(one, place), self.patch(rival, place)])
        finally:
            other.close()
        for status, answer in answers:
            self.count("bind", status, answer, {202}, {404, 409})
        won = [status == 202 for status, _ in answers]
        if all(won):
            raise Wrong(f"two concurrent binds of {one.arqs[0]} were both answered 202")
        if won[0]:
            one.handles = self.look(api, one)
            one.state = BOUND
            return
        self.drop(api, one.id)
        if won[1]:
            one.id, one.state = rival.id, BOUND
            one.handles = self.look(api, one)
        else:
            one.state = before

    def look(self, api, one):
        """Checks the handles of the instance's bound requests."""
        status, _, answer = api.ask("GET", f"{ARQS}?instance={one.id}")
        if status != 200:
            raise Wrong(f"GET ?instance=: {status} {answer}")
        held = {arq["uuid"]: arq["attach_handle_uuid"] for arq in answer["arqs"]}
        if set(held) != set(one.arqs) or not all(held.values()):
            raise Wrong(f"bound {one.arqs} to {one.id}, and it has {answer['arqs']}")
        return held

    def unbind(self, api, one):
        one.state = UNBINDING
        body = {arq: [{"path": "/instance_uuid", "op": "remove"}] for arq in one.arqs}
        status, _, answer = api.ask("PATCH", ARQS, body)
        self.count("unbind", status, answer, {202})
        one.state, one.handles = UNBOUND, {}
        self.drop(api, one.id)

    def delete(self, api, one):
        bound = one.state == BOUND
        one.state = LEAVING
        path = f"{ARQS}?instance={one.id}" if bound else f"{ARQS}?arqs={','.join(one.arqs)}"
        status, _, answer = api.ask("DELETE", path)
        self.count("arq delete", status, answer, {204})
        one.state, one.handles = GONE, {}
        self.drop(api, one.id)

    def compare(self, api):
        """Checks that every answer holds, and looks up the lost ones. No thread runs meanwhile."""
        rows = {arq["uuid"]: arq for arq in api.expect(200, "GET", ARQS)["arqs"]}
        holders = {}
        for arq in rows.values():
            if arq["attach_handle_uuid"] in holders and arq["attach_handle_uuid"]:
                raise Wrong(f"{arq['uuid']} and {holders[arq['attach_handle_uuid']]} hold one handle")
            holders[arq["attach_handle_uuid"]] = arq["uuid"]
        with self.lock:
            mine, self.busy = [*self.free, *self.busy], set()
        for one in mine:
            claimed = one.id
            self.settle(one, [rows.pop(arq, None) for arq in one.arqs])
            if one.state != BOUND or one.id != claimed:
                self.drop(api, claimed)
        self.free = [one for one in mine if one.state != GONE]
        # The rest belongs to Kilonova's own compute, or to creates whose answer was lost.
        lost = [arq["uuid"] for arq in rows.values() if arq["state"] == "Initial"]
        if lost:
            api.expect(204, "DELETE", f"{ARQS}?arqs={','.join(lost)}")

    def settle(self, one, rows):
        states = {row["state"] if row else None for row in rows}
        wanted = {MADE: {"Initial"}, BINDING: {"Initial", "Unbound", "Bound"}, BOUND: {"Bound"},
                  UNBINDING: {"Bound", "Unbound"}, UNBOUND: {"Unbound"},
                  LEAVING: {"Initial", "Unbound", "Bound", None}, GONE: {None}}[one.state]
        if len(states) != 1 or not states <= wanted:
            raise Wrong(f"requests {one.arqs} of an instance that is {one.state} are {states}")
        now = {"Initial": MADE, "Unbound": UNBOUND, "Bound": BOUND, None: GONE}[states.pop()]
        self.seen += now != one.state
        if now == BOUND:
            instances = {row["instance_uuid"] for row in rows}
            rival = one.rival if one.state == BINDING else None
            if len(instances) != 1 or not instances <= {one.id, rival}:
                raise Wrong(f"requests {one.arqs} are of {instances}, not of {one.id}")
            one.id = instances.pop()
            held = {row["uuid"]: row["attach_handle_uuid"] for row in rows}
            if one.handles and one.handles != held:
                raise Wrong(f"{one.id} held {one.handles}, and now holds {held}")
            one.handles = held
        elif any(row and (row["instance_uuid"] or row["attach_handle_uuid"]) for row in rows):
            raise Wrong(f"requests that are not bound have an instance or a handle: {rows}")
        else:
            one.handles = {}
        one.state = now

    def empty(self, api):
        """Deletes everything that remains."""
        self.compare(api)
        for one in self.free:
            self.delete(api, one)
        self.free = []

    def find_places(self, api):
        """The device providers that binds may name: those of simulated hosts and of the reporting host."""
        self.places = offered(api)


def offered(api):
    """The inventory of each device provider, and its host."""
    found = api.expect(200, "GET", "/placement/resource_providers")["resource_providers"]
    hosts, places = {one["uuid"]: one["name"] for one in found}, []
    for one in found:
        path = f"/placement/resource_providers/{one['uuid']}/inventories"
        stock = api.expect(200, "GET", path)["inventories"] if one["parent_provider_uuid"] else {}
        places += [{"uuid": one["uuid"], "class": kind, "host": hosts[one["root_provider_uuid"]],
                    "total": terms["total"], "reserved": terms["reserved"]}
                   for kind, terms in stock.items()]
    return sorted(places, key=lambda place: place["uuid"])


class Voice:
    """Reports devices of the host without guests over the node protocol; cards vanish and return."""

    def __init__(self, dice, serve, nova):
        self.dice, self.serve, self.nova = dice, serve, nova
        with open(os.path.join(serve.state, "node.token"), encoding="utf-8") as file:
            self.word = file.read().strip()

    def step(self, api):
        time.sleep(0.02)
        cards = [card for card in range(CARDS) if self.dice.random() < 0.7]
        self.report(api, {card: self.dice.choice([SLOTS, SLOTS, SLOTS - 1]) for card in cards})

    def whole(self, api):
        self.report(api, {card: SLOTS for card in range(CARDS)})

    def report(self, api, cards):
        body = {"host": HOST, "hypervisor_type": "voice", "hypervisor_version": 1000000,
                "host_ip": "192.0.2.9", "vcpus": 0, "memory_mb": 0, "disk_gb": 0,
                "ratios": [1.0, 1.0, 1.0], "reserved_memory_mb": 0, "traits": [],
                "devices": [self.device(card, slots) for card, slots in cards.items()]}
        status, _, answer = api.ask("POST", "/node/v1/register", body,
                                    {"Authorization": f"Bearer {self.word}"})
        self.nova.count("report", status, answer, {200})

    @staticmethod
    def device(card, slots):
        address = f"0000:{card + 0x20:02x}:00.0"
        handles = [{"type": "test_pci", "address": f"{address[:-1]}{number + 1}"}
                   for number in range(slots)]
        deployable = {"name": f"card{card}", "resource_class": "FPGA", "driver": "fake",
                      "traits": ["CUSTOM_VOICE"], "slots": handles}
        return {"address": address, "kind": "FPGA", "vendor_id": "8086", "product_id": "09c4",
                "model": "voice", "numa_node": -1, "deployables": [deployable]}


class User:
    """The user that the external Nova acts for."""

    def __init__(self, token, login):
        self.token, self.id, self.project = token, login["user"]["id"], login["project"]["id"]


class Speaker(Api):
    """The external Nova's connection: the user's token and the service's own."""

    def __init__(self, url, user, service):
        super().__init__(url, user.token)
        self.url, self.user, self.service = url, user, service

    def clone(self):
        return Speaker(self.url, self.user, self.service)

    def ask(self, method, path, body=None, headers=None):
        return super().ask(method, path, body, {"X-Service-Token": self.service, **(headers or {})})


def topologies(whole, folder):
    """The complete topology, and two with fewer devices: hosts lose devices while they are down."""
    with open(whole, encoding="utf-8") as file:
        text = file.read()
    fewer = re.sub(r"(?s)(\[\[host\.fake\]\].*?\ncount = )(\d+)",
                   lambda found: f"{found[1]}{int(found[2]) // 2}", text)
    lost = re.sub(r'(addresses = \[.*), *"[^"]*"\]', r"\1]", text)
    paths = [whole]
    for name, other in (("fewer", fewer), ("lost", lost)):
        if other == text:
            raise Wrong(f"{whole} has no device that fits {name}")
        paths.append(os.path.join(folder, f"{name}.toml"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(other)
    return paths


def both(first, second, bodies):
    """Sends two PATCH requests at the same time. Returns both answers."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(api.ask, "PATCH", ARQS, body)
                 for api, body in zip((first, second), bodies)]
        return [(status, answer) for status, _, answer in (one.result() for one in asked)]


def service_user(api, openrc):
    """Creates the external Nova's own user. Returns an openrc for it."""
    find = {}
    for kind in ("projects", "roles"):
        rows = api.expect(200, "GET", f"/identity/v3/{kind}?name=service")[kind]
        find[kind] = rows[0]["id"]
    body = {"user": {"name": "nova", "password": "chaos-nova-password"}}
    user = api.expect(201, "POST", "/identity/v3/users", body)["user"]["id"]
    api.expect(204, "PUT", f"/identity/v3/projects/{find['projects']}/users/{user}"
                           f"/roles/{find['roles']}")
    return {**openrc, "OS_USERNAME": "nova", "OS_PASSWORD": "chaos-nova-password",
            "OS_PROJECT_NAME": "service"}


def prepare(api, serve, dice, lock):
    """Prepares the external Nova and the reporting host."""
    openrc = serve.openrc()
    service = Api(serve.url)
    service.login(service_user(api, openrc))
    service.close()
    user = User(api.token, api.login(openrc))
    for name, count in PROFILES.items():
        profile = [{"name": name, "groups": [{"resources:FPGA": str(count)}]}]
        api.expect(201, "POST", "/accelerator/v2/device_profiles", profile)
    nova = Nova(dice, lock, user, service.token)
    voice = Voice(dice, serve, nova)
    voice.whole(api)
    nova.find_places(api)
    return nova, voice


def check_whole(api, nova, voice):
    """With nothing bound and every card back, everything is offered again and every handle is free."""
    voice.whole(api)
    deadline = time.monotonic() + 30
    while (now := offered(api)) != nova.places:
        if time.monotonic() > deadline:
            odd = [place for place in now if place not in nova.places]
            raise Wrong(f"every device is back, but instead of {len(nova.places)} providers there are "
                        f"{len(now)}, with these differences: {odd}")
        time.sleep(0.1)
    metrics = api.expect(200, "GET", "/metrics")
    counts = re.findall(r'^kilonova_attach_handles\{(.*)\} (\d+)', metrics, re.M)
    held = [labels for labels, count in counts if 'state="free"' not in labels and int(count)]
    if held or not counts:
        raise Wrong(f"nothing is bound, but {f'handles are not free: {held}' if held else 'no handles are reported'}")
    handles, units = sum(int(count) for _, count in counts), sum(one["total"] for one in now)
    if handles != units:
        raise Wrong(f"there are {handles} handles for {units} units")
