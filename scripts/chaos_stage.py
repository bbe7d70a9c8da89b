"""The environment of `chaos.py`: hosts as processes, a host that is down for a while, flavors of every
kind, zones, groups, an image, and configuration options that change what operations do.
"""

import os
import random
import signal
import subprocess
import time
import tomllib

from chaos_compute import COMPUTE
from stack import Wrong

AWAY = 0.15         # probability per round that a host goes down for a while


class Host:
    """A simulated host as a `kilonova node` process."""

    def __init__(self, serve, name, folder):
        self.serve, self.name = serve, name
        self.state = os.path.join(folder, f"host-{name}")
        self.log = os.path.join(folder, f"host-{name}.log")
        self.process = None
        self.topology = serve.topology
        self.program = None     # if it is not the controller's
        self.control = None     # a URL, if it is not the controller's own

    def start(self):
        command = [self.program or self.serve.binary, "node",
                   "--control", self.control or self.serve.url, "--host", self.name,
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
        """Checks that it is running: it must never exit on its own."""
        if self.process.poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                end = "".join(log.readlines()[-5:])
            raise Wrong(f"host {self.name} ended with exit code {self.process.returncode}:\n{end}")


def names(topology):
    """The hosts that a topology file declares."""
    with open(topology, "rb") as file:
        return [host["name"] for host in tomllib.load(file)["host"]]


def register(api, count):
    """Waits until every host has registered."""
    deadline = time.monotonic() + 30
    while len(api.expect(200, "GET", f"{COMPUTE}/os-hypervisors")["hypervisors"]) < count:
        if time.monotonic() > deadline:
            raise Wrong(f"not all of the {count} hosts have registered within 30 s")
        time.sleep(0.02)


class Stage:
    """The resources that the load uses."""

    def __init__(self, api, hosts, whole):
        self.hosts = hosts
        self.flavors, self.groups, self.zones = [], [], []
        kinds = {"plain": {}, "vgpu": {"resources:VGPU": "1"}}
        if whole:
            kinds |= {"large": {}, "apart": {"resources1:VGPU": "1", "resources2:VGPU": "1",
                                             "group_policy": "isolate"},
                      "function": {"resources:CUSTOM_X710": "1"}}
            self.profile(api, kinds, "chaos-vgpu", {"resources:VGPU": "1"})
        devices = api.expect(200, "GET", "/accelerator/v2/devices")["devices"]
        if any(device["type"] == "FPGA" for device in devices):
            self.profile(api, kinds, "chaos-fpga", {"resources:FPGA": "1"})
        for name, extra in kinds.items():
            self.flavors.append(self.flavor(api, name, extra))
        if whole:
            self.place(api)
        body = {"name": "tiny", "disk_format": "raw", "container_format": "bare"}
        self.image = api.expect(201, "POST", "/image/v2/images", body)["id"]
        api.expect(204, "PUT", f"/image/v2/images/{self.image}/file", random.randbytes(65536),
                   {"Content-Type": "application/octet-stream"})

    @staticmethod
    def profile(api, kinds, name, group):
        api.expect(201, "POST", "/accelerator/v2/device_profiles", [{"name": name, "groups": [group]}])
        kinds[name] = {"accel:device_profile": name}

    @staticmethod
    def flavor(api, name, extra):
        size = {"vcpus": 2, "ram": 128} if name == "large" else {"vcpus": 1, "ram": 64}
        flavor = api.expect(200, "POST", f"{COMPUTE}/flavors",
                            {"flavor": {"name": name, "disk": 1, **size}},
                            {"OpenStack-API-Version": "compute 2.61"})["flavor"]["id"]
        if extra:
            api.expect(200, "POST", f"{COMPUTE}/flavors/{flavor}/os-extra_specs",
                       {"extra_specs": extra})
        return flavor

    def place(self, api):
        """Creates two zones, and a group of each policy."""
        self.zones = ["east", "west"]
        for number, zone in enumerate(self.zones):
            body = {"aggregate": {"name": zone, "availability_zone": zone}}
            made = api.expect(200, "POST", f"{COMPUTE}/os-aggregates", body)["aggregate"]["id"]
            for host in self.hosts[:2] if number == 0 else self.hosts[2:]:
                api.expect(200, "POST", f"{COMPUTE}/os-aggregates/{made}/action",
                           {"add_host": {"host": host}})
        for policy in ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"):
            body = {"server_group": {"name": policy, "policy": policy}}
            made = api.expect(200, "POST", f"{COMPUTE}/os-server-groups", body)
            self.groups.append(made["server_group"]["id"])


def declare(api, host, down):
    """Declares a host down, or up again. False for a host that has not removed the guests of evacuated servers yet."""
    body = {"host": host, "binary": "nova-compute", "forced_down": down}
    path, version = f"{COMPUTE}/os-services/force-down", {"OpenStack-API-Version": "compute 2.11"}
    status, _, answer = api.ask("PUT", path, body, version)
    if status == 400 and "evacuation migration records remain" in str(answer):
        return False
    if status != 200:
        raise Wrong(f"PUT {path}: expected 200, got {status}: {answer}")
    return True


class Absence:
    """A host that is down for some rounds."""

    def __init__(self, world, hosts, names):
        self.world, self.names = world, names
        self.processes = {host.name: host for host in hosts}
        self.rounds = 0

    def begin(self, api):
        """Takes a host down, with some probability."""
        if not self.world.whole or self.world.away or self.world.dice.random() > AWAY:
            return
        name = self.world.dice.choice(self.names)
        self.rounds = self.world.dice.randint(1, 3)
        if name in self.processes:
            self.processes[name].kill()
        declare(api, name, True)
        self.world.away = name

    def end(self, api, now):
        """Brings the host back when its time is over, or now."""
        self.rounds -= 1
        if not self.world.away or (self.rounds > 0 and not now):
            return
        name, self.world.away = self.world.away, None
        steps = [lambda: declare(api, name, False)]
        if name in self.processes:
            steps.append(self.processes[name].start)
        self.world.dice.shuffle(steps)
        for step in steps:
            step()
        deadline = time.monotonic() + 60
        while not declare(api, name, False):
            if time.monotonic() > deadline:
                raise Wrong(f"{name} has not removed the guests of evacuated servers")
            time.sleep(0.1)


def configuration(dice, folder):
    """A configuration file with options that change what operations do. Returns its text too."""
    lines = [f"reclaim_instance_interval = {dice.choice([0, 3600])}",
             f"shelved_offload_time = {dice.choice([-1, 0])}",
             f"allow_resize_to_same_host = {dice.choice(['true', 'false'])}"]
    path = os.path.join(folder, "kilonova.conf")
    with open(path, "w", encoding="utf-8") as file:
        # The data that a killed deletion leaves is deleted by the next start.
        file.write("\n".join(["[DEFAULT]", *lines, "[image]", "leftover_age = 0", ""]))
    return path, lines
