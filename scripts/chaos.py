#!/usr/bin/env python3
"""Random kill -9 of a real `kilonova serve` under load, with a ledger audit each time.

    scripts/chaos.py [KILLS] [--split] [--accelerators] [--kilonova PROGRAM] [--database URL]
                     [--seed N] [--minutes N]

Each round: some seconds' fraction of creates, deletes, stops and starts by several threads over
plain HTTP; kill -9 at a random moment; `kilonova doctor` on what is there; start again. With
--split the hosts are processes of their own, and a kill hits the control plane, a host, or all. With
--accelerators a Nova of somebody else binds devices over the v2 API meanwhile, and a host reports
devices that vanish and return (chaos_accelerators.py). What was
answered must hold: a server whose create was answered is there, one whose delete was answered goes.
Now and then, and at the end, it waits until nothing is under way and then looks closer; at the very
end it deletes everything and wants every usage to be 0.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import chaos_accelerators
from stack import Api, Gone, Serve, Wrong, settle

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
THREADS = 6
ALIVE = 30          # the load deletes rather than creates when there are more servers
SETTLE_EVERY = 10   # rounds
COMPUTE = "/compute/v2.1"


class Host:
    """A simulated host as a `kilonova node` process."""

    def __init__(self, serve, name, folder):
        self.serve, self.name = serve, name
        self.state = os.path.join(folder, f"host-{name}")
        self.log = os.path.join(folder, f"host-{name}.log")
        self.process = None
        self.topology = serve.topology

    def start(self):
        command = [self.serve.binary, "node", "--control", self.serve.url, "--host", self.name,
                   "--nodes", self.topology, "--state-dir", self.state,
                   "--token-file", os.path.join(self.serve.state, "node.token")]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                            stdout=subprocess.DEVNULL, stderr=log,
                                            start_new_session=True)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def check(self):
        """It never ends by itself, whatever is killed around it."""
        if self.process.poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                end = "".join(log.readlines()[-5:])
            raise Wrong(f"host {self.name} ended with exit code {self.process.returncode}:\n{end}")


class World:
    """What the load knows to be true: which answers it has got."""

    def __init__(self, dice):
        self.lock = threading.Lock()
        self.dice = dice
        self.live = set()       # there, as far as we know, and nobody has asked to delete it
        self.leaving = set()    # a delete was sent; whether it was heard is not known
        self.gone = set()       # a delete was answered
        self.requests = {"create": 0, "delete": 0, "stop": 0, "start": 0}
        self.refused = 0
        self.answered = 0

    def pick(self):
        with self.lock:
            return self.dice.choice(sorted(self.live)) if self.live else None

    def choose(self):
        """The next thing to do, and to which server."""
        with self.lock:
            count, roll = len(self.live), self.dice.random()
        if count < ALIVE / 3 or (roll < 0.5 and count < ALIVE):
            return "create", None
        verb = "delete" if roll < 0.8 or count >= ALIVE else self.dice.choice(["stop", "start"])
        return verb, self.pick()


class Load:
    """Threads that ask until the server is gone."""

    def __init__(self, world, api, flavors, image, others):
        self.world, self.flavors, self.image = world, flavors, image
        self.over = threading.Event()
        self.wrong = []
        jobs = [(api.clone, self.step)] * (THREADS // 2 if others else THREADS) + others
        self.threads = [threading.Thread(target=self.run, args=job, daemon=True) for job in jobs]
        for thread in self.threads:
            thread.start()

    def step(self, connection):
        verb, server = self.world.choose()
        if verb == "create":
            self.create(connection)
        elif server:
            getattr(self, verb)(connection, server)

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

    def join(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60)
            if thread.is_alive():
                raise Wrong("a request has had no answer for 60 s")
        if self.wrong:
            raise self.wrong[0]

    def count(self, verb, status, answer, good, tolerated):
        with self.world.lock:
            self.world.requests[verb] += 1
            self.world.answered += 1
            self.world.refused += status in tolerated
        if status not in good and status not in tolerated:
            raise Wrong(f"{verb}: unexpected answer {status}: {answer}")

    def create(self, connection):
        body = {"server": {"name": "chaos", "networks": "none", "imageRef": self.image,
                           "flavorRef": self.world.dice.choice(self.flavors)}}
        status, _, answer = connection.ask("POST", f"{COMPUTE}/servers", body)
        self.count("create", status, answer, {202}, set())
        with self.world.lock:
            self.world.live.add(answer["server"]["id"])

    def delete(self, connection, server):
        with self.world.lock:
            if server not in self.world.live:
                return
            self.world.live.remove(server)
            self.world.leaving.add(server)
        status, _, answer = connection.ask("DELETE", f"{COMPUTE}/servers/{server}")
        self.count("delete", status, answer, {204}, set())
        with self.world.lock:
            self.world.leaving.remove(server)
            self.world.gone.add(server)

    def action(self, connection, server, verb):
        status, _, answer = connection.ask("POST", f"{COMPUTE}/servers/{server}/action",
                                           {f"os-{verb}": None})
        # 409: it is not in a state for it. 404: another thread has deleted it meanwhile.
        self.count(verb, status, answer, {202}, {404, 409})

    def stop(self, connection, server):
        self.action(connection, server, "stop")

    def start(self, connection, server):
        self.action(connection, server, "start")


def names(topology):
    """The hosts that a topology file declares."""
    with open(topology, "rb") as file:
        return [host["name"] for host in tomllib.load(file)["host"]]


def register(api, count):
    """Waits until every host is there."""
    deadline = time.monotonic() + 30
    while len(api.expect(200, "GET", f"{COMPUTE}/os-hypervisors")["hypervisors"]) < count:
        if time.monotonic() > deadline:
            raise Wrong(f"not all of the {count} hosts have registered within 30 s")
        time.sleep(0.02)


def prepare(api):
    """A flavor of each kind that the hosts can serve, and an image."""
    kinds = [("plain", {}), ("vgpu", {"resources:VGPU": "1"})]
    devices = api.expect(200, "GET", "/accelerator/v2/devices")["devices"]
    if any(device["type"] == "FPGA" for device in devices):
        profile = [{"name": "chaos-fpga", "groups": [{"resources:FPGA": "1"}]}]
        api.expect(201, "POST", "/accelerator/v2/device_profiles", profile)
        kinds.append(("fpga", {"accel:device_profile": "chaos-fpga"}))
    flavors = []
    for name, extra in kinds:
        body = {"flavor": {"name": name, "vcpus": 1, "ram": 64, "disk": 1}}
        flavor = api.expect(200, "POST", f"{COMPUTE}/flavors", body,
                            {"OpenStack-API-Version": "compute 2.61"})["flavor"]["id"]
        if extra:
            api.expect(200, "POST", f"{COMPUTE}/flavors/{flavor}/os-extra_specs",
                       {"extra_specs": extra})
        flavors.append(flavor)
    body = {"name": "tiny", "disk_format": "raw", "container_format": "bare"}
    image = api.expect(201, "POST", "/image/v2/images", body)["id"]
    api.expect(204, "PUT", f"/image/v2/images/{image}/file", random.randbytes(65536),
               {"Content-Type": "application/octet-stream"})
    return flavors, image


def audit(serve, when):
    _, code, said = serve.doctor()
    if code != 0:
        raise Wrong(f"the audit {when} is not clean (exit code {code}):\n{said}")


def compare(world, servers, settled):
    """What was answered must hold."""
    lost = world.live - set(servers)
    if lost:
        raise Wrong(f"{len(lost)} server(s) are lost though their create was answered: {min(lost)}")
    if settled:
        back = world.gone & set(servers)
        if back:
            raise Wrong(f"{len(back)} server(s) are there though their delete was answered: "
                        f"{min(back)}")
        world.gone.clear()
        world.leaving.clear()
    # Servers whose answer was lost in the kill are adopted, or the hosts would fill up.
    world.live |= set(servers) - world.gone - world.leaving


def equip(process, topology):
    """What the simulated hosts of a process find when it starts."""
    if isinstance(process, Host):
        process.topology = topology
    elif process.nodes:
        process.nodes = topology


def strike(serve, hosts, dice):
    """Kills something, and returns what is to be started again."""
    if not hosts:
        serve.kill()
        return [serve]
    for host in hosts:
        host.check()
    victims = dice.choice([[serve], [dice.choice(hosts)], [serve, *hosts]])
    for victim in victims:
        victim.kill()
    return victims


def beside(serve, nova, voice):
    """What runs beside boots with --accelerators: how each thread connects, and what it does."""
    if nova is None:
        return []
    return [(lambda: nova.connect(serve.url), nova.step)] * 4 + [(lambda: Api(serve.url), voice.step)]


def rounds(options, serve, hosts, world, api, flavors, image, nova, others, topologies, progress):
    deadline = time.monotonic() + options.minutes * 60
    for done in range(1, options.kills + 1):
        load = Load(world, api, flavors, image, others)
        time.sleep(world.dice.uniform(0.0, 0.4))
        victims = strike(serve, hosts, world.dice)
        load.join()
        audit(serve, f"after kill {done}")
        for victim in victims:
            whole = done == options.kills or len(topologies) == 1
            equip(victim, options.nodes if whole else world.dice.choice(topologies))
            victim.start()
        serve.tidy()
        if nova:
            nova.compare(api.clone())
        settled = done % SETTLE_EVERY == 0 or done == options.kills
        compare(world, settle(api.clone()) if settled else api.clone().servers(), settled)
        if settled:
            audit(serve, f"at rest after kill {done}")
        progress(done)
        if time.monotonic() > deadline and done < options.kills:
            raise Wrong(f"only {done} of {options.kills} kills in {options.minutes} minutes")


def empty(serve, api, nova, voice):
    """Deletes everything; then nothing may be used any more."""
    if nova:
        nova.empty(nova.connect(serve.url))
    for server in api.servers():
        api.expect(204, "DELETE", f"{COMPUTE}/servers/{server}")
    deadline = time.monotonic() + 60
    while api.servers():
        if time.monotonic() > deadline:
            raise Wrong("servers are still there 60 s after their delete was answered")
        time.sleep(0.05)
    for provider in api.expect(200, "GET", "/placement/resource_providers")["resource_providers"]:
        usages = api.expect(200, "GET", f"/placement/resource_providers/{provider['uuid']}/usages")
        if any(usages["usages"].values()):
            raise Wrong(f"no server is left, but {provider['name']} has {usages['usages']} used")
    arqs = api.expect(200, "GET", "/accelerator/v2/accelerator_requests")["arqs"]
    if arqs:
        raise Wrong(f"no server is left, but {len(arqs)} accelerator request(s) are: {arqs[0]}")
    if voice:
        chaos_accelerators.check_whole(api, nova, voice)
    audit(serve, "with all servers deleted")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kills", nargs="?", type=int, default=200)
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--nodes", default=os.path.join(ROOT, "examples/nodes/demo.toml"))
    parser.add_argument("--split", action="store_true", help="hosts as processes of their own")
    parser.add_argument("--accelerators", action="store_true",
                        help="devices bound by another Nova, and reports, beside boots")
    parser.add_argument("--database", help="PostgreSQL URL; SQLite when left out")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--minutes", type=float, default=15, help="give up after this long")
    parser.add_argument("--counts", help="file to write `passed failed` to")
    options = parser.parse_args()
    if not os.path.exists(options.kilonova):
        parser.error(f"{options.kilonova} is not there; `make build` builds it")
    begun, survived, failed = time.monotonic(), 0, 1
    folder = tempfile.mkdtemp(prefix="kilonova-chaos-")
    state = os.path.join(folder, "state")
    os.mkdir(state)
    serve = Serve(os.path.abspath(options.kilonova), state,
                  None if options.split else options.nodes, options.database)
    serve.topology = options.nodes
    hosts = [Host(serve, name, folder) for name in names(options.nodes)] if options.split else []
    world = World(random.Random(options.seed))
    nova = voice = None
    print(f"chaos: {options.kills} kills, seed {options.seed}, "
          f"{'PostgreSQL' if options.database else 'SQLite'}"
          f"{', each host a process' if hosts else ''}"
          f"{', devices bound by another Nova' if options.accelerators else ''}", flush=True)

    def progress(done):
        nonlocal survived
        survived = done
        terminal = sys.stdout.isatty()
        if terminal or done % 20 == 0 or done == options.kills:
            counts = {**world.requests, **(nova.requests if nova else {})}
            asked = ", ".join(f"{count} {verb}s" for verb, count in counts.items())
            print(f"{chr(13) if terminal else ''}chaos: {done}/{options.kills} kills survived "
                  f"({asked})", end="" if terminal and done < options.kills else "\n", flush=True)

    try:
        serve.start()
        api = Api(serve.url)
        api.login(serve.openrc())
        for host in hosts:
            host.start()
        register(api, len(names(options.nodes)))
        flavors, image = prepare(api)
        # The quota is not what is tried here.
        project = api.login(serve.openrc())["project"]["id"]
        api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{project}",
                   {"quota_set": {"instances": -1, "cores": -1, "ram": -1}},
                   {"OpenStack-API-Version": "compute 2.56"})
        if options.accelerators:
            nova, voice = chaos_accelerators.prepare(api, serve, world.dice, world.lock)
        api.close()
        topologies = [options.nodes]
        if options.accelerators:
            topologies = chaos_accelerators.topologies(options.nodes, folder)
        rounds(options, serve, hosts, world, api, flavors, image, nova,
               beside(serve, nova, voice), topologies, progress)
        for host in hosts:
            host.check()
            host.kill()
            equip(host, options.nodes)
            host.start()
        empty(serve, api.clone(), nova, voice)
        for host in hosts:
            host.check()
        code, took = serve.stop()
        if code != 0 or took > 5.5:
            raise Wrong(f"SIGTERM: exit code {code} after {took:.1f} s")
        failed = 0
        answered = world.answered + (nova.answered if nova else 0)
        print(f"chaos: {options.kills} kills, {answered} answered requests, the audit clean "
              f"each time, nothing lost, nothing left; {time.monotonic() - begun:.0f} s")
    except (Wrong, Gone, OSError, KeyError, ValueError) as error:
        print(f"\n  ✗ {error}", flush=True)
        if serve.starts:
            print(f"\nthe end of kilonova's log ({serve.log}):\n{serve.tail()}")
    finally:
        for process in [serve, *hosts]:
            process.kill()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{survived} {failed}\n")
    if failed:
        print(f"chaos: failed with seed {options.seed}; what it left is in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
