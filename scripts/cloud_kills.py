#!/usr/bin/env python3
"""Kills the controller repeatedly while servers with ports and volumes of a real cloud are created, changed and
deleted, and checks that nothing is left in Neutron and Cinder.

    scripts/cloud_kills.py [--kilonova PROGRAM] [--counts FILE]

cloud_stage.py, cloud_ports.py and cloud_volumes.py describe the environment's variables. KILONOVA_KILLS is the number
of kills (default 10), KILONOVA_SEED repeats the choices of a run.
"""

import collections
import http.client
import os
import random
import sys
import threading
import time
import urllib.error

from cloud_ports import Neutron
from cloud_stage import Cloud, Journey, Wrong, call, check, expect, main, play, until
from cloud_volumes import Cinder, lacking, settings

KILLS = int(os.environ.get("KILONOVA_KILLS", "10"))
SEED = int(os.environ.get("KILONOVA_SEED", str(random.randrange(1 << 30))))
USERS = 8
PAUSES = (0.5, 3, 10, 20)       # seconds: during a request, a build, and after a worker's lease has expired
AWAY = (OSError, urllib.error.URLError, http.client.HTTPException)


class User(threading.Thread):
    """Creates, changes and deletes servers, regardless of the answers."""

    def __init__(self, number, stage):
        super().__init__(daemon=True)
        self.stage, self.random = stage, random.Random(f"{SEED} {number}")
        self.port = stage.neutron.supplied(stage.network)
        self.volume = stage.cinder.make()
        self.wrong = None

    def call(self, method, path, body=None, token=None):
        """The answer; None if the controller is dead or dies meanwhile."""
        try:
            answer = self.stage.kilonova.call(token or self.stage.cloud.demo, method, path, body)
        except AWAY:
            time.sleep(0.3)
            answer = None
        if method != "GET":
            self.stage.seen[f"{answer.status // 100}xx" if answer else "unanswered"] += 1
        return answer

    def act(self, server, action, token=None):
        return self.call("POST", f"/servers/{server}/action", action, token)

    def settled(self, server):
        """Waits until the server is idle; its status, or None without the server."""
        end = time.monotonic() + 150
        while time.monotonic() < end:
            answer = self.call("GET", f"/servers/{server}")
            if answer and answer.status == 404:
                return None
            if answer and answer.status == 200:
                shown = answer.json()["server"]
                if shown["OS-EXT-STS:task_state"] is None and shown["status"] not in ("BUILD", "MIGRATING"):
                    return shown["status"]
            time.sleep(0.3)
        return "LATE"

    def boot(self):
        stage = self.stage
        root = {"uuid": stage.image, "source_type": "image", "destination_type": "local", "boot_index": 0}
        volume = {"uuid": self.volume, "source_type": "volume", "destination_type": "volume", "boot_index": -1}
        blank = {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": -1,
                 "delete_on_termination": True}
        mappings = [root, *self.random.choice([[], [volume], [blank], [volume, blank]])]
        networks = [{"uuid": stage.network}, *self.random.choice([[], [{"port": self.port}]])]
        body = {"name": "killed", "flavorRef": stage.journey.flavors[0], "imageRef": stage.image,
                "networks": networks, "block_device_mapping_v2": mappings}
        answer = self.call("POST", "/servers", {"server": body})
        return answer.json()["server"]["id"] if answer and answer.status == 202 else None

    def change(self, server):
        admin, path = self.stage.cloud.admin, f"/servers/{server}"
        volumes, ports = f"{path}/os-volume_attachments", f"{path}/os-interface"
        change = self.random.randrange(7)
        if change == 0:
            self.call("POST", volumes, {"volumeAttachment": {"volumeId": self.volume}})
        elif change == 1:
            self.call("DELETE", f"{volumes}/{self.volume}")
        elif change == 2:
            self.call("POST", ports, {"interfaceAttachment": self.random.choice([{"net_id": self.stage.network}, {"port_id": self.port}])})
        elif change == 3:
            self.call("DELETE", f"{ports}/{self.port}")
        elif change == 4:
            self.act(server, {"resize": {"flavorRef": self.stage.journey.flavors[1]}})
            if self.settled(server) == "VERIFY_RESIZE":
                self.act(server, self.random.choice([{"confirmResize": None}, {"revertResize": None}]))
        elif change == 5:
            self.act(server, {"os-migrateLive": {"host": None, "block_migration": "auto"}}, admin)
        else:
            self.act(server, {"shelve": None})
            self.settled(server)
            self.act(server, {"unshelve": None})

    def run(self):
        try:
            while not self.stage.ended:
                server = self.boot()
                if server is None:
                    continue
                self.stage.servers.append(server)
                self.stage.seen[f"builds that end {self.settled(server)}"] += 1
                for _ in range(self.random.randrange(4)):
                    self.change(server)
                    self.settled(server)
                self.call("DELETE", f"/servers/{server}")
                self.settled(server)
        except BaseException as why:
            self.wrong = why


class Stage:
    """The state that the users share."""

    def __init__(self, cloud, kilonova):
        self.cloud, self.kilonova = cloud, kilonova
        self.neutron, self.cinder = Neutron(cloud), Cinder(cloud)
        self.image = cloud.upload("cirros")
        self.network = self.neutron.network("192.0.2.0/24", name="inside")
        self.journey = Journey(cloud, kilonova, None)
        self.servers, self.ended, self.seen = [], False, collections.Counter()

    def all(self):
        """All servers, as the API shows them."""
        answer = expect(self.kilonova.call(self.cloud.admin, "GET", "/servers/detail?all_tenants=1"), 200)
        return answer.json()["servers"]

    def clear(self):
        """Deletes all servers."""
        def gone():
            left = self.all()
            for server in left:
                if server["OS-EXT-STS:task_state"] != "deleting":
                    self.kilonova.call(self.cloud.admin, "DELETE", f"/servers/{server['id']}")
            return not left
        until(lambda: f"servers are left: {self.all()}", gone, 180)


def left_in(stage, users):
    """Descriptions of the servers' remains in the two services."""
    found = []
    known = {user.port for user in users}
    for port in expect(stage.neutron.call("GET", f"/ports?network_id={stage.network}"), 200).json()["ports"]:
        if port["device_owner"].startswith("network:"):
            continue
        if port["id"] not in known or port["device_id"] or port["device_owner"] or port["binding:host_id"] or port["dns_name"]:
            found.append(f"port {port['id']} of {port['device_id']!r} on {port['binding:host_id']!r}")
    found += [f"attachment {one['id']} of {one['instance']} ({one['status']})" for one in stage.cinder.attachments()]
    volumes = {user.volume for user in users}
    for volume in stage.cinder.volumes():
        if volume["id"] not in volumes:
            found.append(f"volume {volume['id']} {volume['name']!r} ({volume['status']})")
        elif volume["status"] != "available":
            found.append(f"volume {volume['id']} is {volume['status']}")
    return found


def scene(cloud, kilonova):
    print(f"seed {SEED}")
    stage = Stage(cloud, kilonova)
    check("Cinder's volumes before", stage.cinder.volumes(), [])
    users = [User(number, stage) for number in range(USERS)]
    chance = random.Random(SEED)
    for user in users:
        user.start()
    for _ in range(KILLS):
        time.sleep(chance.choice(PAUSES) * chance.uniform(0.5, 1.5))
        kilonova.kill()
        kilonova.start()
    time.sleep(10)
    stage.ended = True
    for user in users:
        user.join(400)
        if user.wrong or user.is_alive():
            raise Wrong(f"a user fails: {user.wrong!r}")
    counts = ", ".join(f"{count} {what}" for what, count in sorted(stage.seen.items()))
    print(f"    {KILLS} kills, {len(stage.servers)} servers; {counts}", flush=True)
    stage.clear()
    until(lambda: f"something is left: {left_in(stage, users)}", lambda: not left_in(stage, users), 180)
    for user in users:
        check("the owner's key", stage.neutron.port(user.port)["binding:profile"], {"owner": "kept"})
        stage.neutron.drop(f"/ports/{user.port}")
        stage.cinder.drop(user.volume)
    stage.journey.end()
    stage.neutron.drop(f"/networks/{stage.network}")
    for one in cloud.images():
        if one["id"] == stage.image or one.get("instance_uuid") in stage.servers:
            expect(call("DELETE", f"{cloud.glance}/v2/images/{one['id']}", cloud.admin), 204)


def run(program):
    cloud = Cloud()
    play("cloud_kills", program, scene, cloud, **settings(cloud))


if __name__ == "__main__":
    sys.exit(main(__doc__, "cloud_kills", run, lacking))
