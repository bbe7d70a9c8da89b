#!/usr/bin/env python3
"""Runs Kilonova in Nova's place beside a real Keystone, Glance, Neutron and Cinder, and checks the volumes after each operation.

    scripts/cloud_volumes.py [--kilonova PROGRAM] [--counts FILE]

cloud_stage.py says how the environment names the cloud, and cloud_ports.py which hosts are used and where Kilonova
listens: Cinder asks there whether an attachment is in use. KILONOVA_CLOUD_VOLUME_TYPE names the volume type; the
default is Cinder's.
"""

import json
import os
import sys

import cloud_ports
from cloud_ports import Neutron, Ports
from cloud_stage import Cloud, Journey, Kilonova, Wrong, call, check, expect, main, play, until


class Cinder:
    """A client of the external Cinder, as an admin."""

    def __init__(self, cloud):
        self.cloud, self.url = cloud, cloud.endpoint("block-storage", "volumev3")
        self.kind = os.environ.get("KILONOVA_CLOUD_VOLUME_TYPE")

    def call(self, method, path, body=None, token=None, version="3.60", service=None):
        headers = {"OpenStack-API-Version": f"volume {version}"}
        if service:
            headers["X-Service-Token"] = service
        return call(method, self.url + path, token or self.cloud.admin, body, headers)

    def make(self, size=1, **more):
        """A volume of the user."""
        body = {"volume": {"size": size, "volume_type": self.kind, **more}}
        volume = expect(self.call("POST", "/volumes", body, self.cloud.demo), 202).json()["volume"]["id"]
        self.wait(volume, "available")
        return volume

    def volume(self, volume):
        answer = expect(self.call("GET", f"/volumes/{volume}"), 200, 404)
        return answer.json()["volume"] if answer.status == 200 else None

    def volumes(self):
        return expect(self.call("GET", "/volumes/detail?all_tenants=1"), 200).json()["volumes"]

    def wait(self, volume, status):
        def settled():
            found = self.volume(volume)
            if found["status"] == "error":
                raise Wrong(f"the volume {volume} is in error")
            return found["status"] == status
        until(f"the volume is {status}", settled)

    def attachments(self, server=None):
        """The attachments of a server, or all."""
        query = "all_tenants=1" + (f"&instance_id={server}" if server else "")
        answer = expect(self.call("GET", f"/attachments/detail?{query}", version="3.44"), 200)
        return answer.json()["attachments"]

    def drop(self, volume):
        expect(self.call("DELETE", f"/volumes/{volume}"), 202, 404)
        until("the volume is gone", lambda: self.volume(volume) is None)


def lacking():
    """The reason why the run is not possible; empty if it is."""
    cloud = Cloud()
    if not cloud.endpoint("block-storage", "volumev3"):
        return "the catalog has no Cinder"
    return cloud_ports.lacking()


class Volumes:
    """The expected state in Cinder for a server: one attachment of each volume, connected to the server's host."""

    def __init__(self, cinder, kilonova):
        self.cinder, self.kilonova = cinder, kilonova

    def facts(self, server):
        """Cinder's state of each volume of the server."""
        facts = {}
        for one in self.cinder.attachments(server):
            volume = self.cinder.volume(one["volume_id"])
            attached = [(each["server_id"], each["attachment_id"], each["host_name"], each["device"])
                        for each in volume["attachments"]]
            facts.setdefault(one["volume_id"], (volume["status"], attached, []))[2].append(
                (one["id"], one["status"], bool(one["connection_info"])))
        return facts

    def wanted(self, shown):
        server, host = shown["id"], shown["OS-EXT-SRV-ATTR:host"]
        path = f"/servers/{server}/os-volume_attachments"
        listed = expect(self.kilonova.call(self.cinder.cloud.admin, "GET", path), 200).json()["volumeAttachments"]
        wanted = {}
        for one in listed:
            if shown["status"] == "SHELVED_OFFLOADED":
                wanted[one["volumeId"]] = ("reserved", [], [(one["attachment_id"], "reserved", False)])
            else:
                attached = [(server, one["attachment_id"], host, one["device"])]
                wanted[one["volumeId"]] = ("in-use", attached, [(one["attachment_id"], "attached", True)])
        return wanted

    def look(self, count, ports):
        """A check of servers with this number of volumes, and of their ports."""
        def look(verb, shown):
            seen = {}

            def settled():
                seen["found"], seen["wanted"] = self.facts(shown["id"]), self.wanted(shown)
                return len(seen["found"]) == count and seen["found"] == seen["wanted"]

            ports(verb, shown)
            until(lambda: f"Cinder's volumes after {verb}: {seen}", settled, 60)
            status, attached, attachments = next(iter(seen["found"].values()), ("", [], []))
            places = ", ".join(f"{host} {device}" for _, _, host, device in attached) or "no host"
            states = ", ".join(f"{state}{'' if connected else ' without a connection'}" for _, state, connected in attachments)
            return f"{count} × {status} ({places}), one attachment: {states}"
        return look


def guarded(cloud, cinder, volume):
    """A user cannot end an attachment that a server uses: Cinder asks Kilonova."""
    attachment = cinder.volume(volume)["attachments"][0]["attachment_id"]
    answer = expect(cinder.call("DELETE", f"/attachments/{attachment}", token=cloud.demo, version="3.44"), 409)
    if "using the Compute API" not in answer.body.decode():
        raise Wrong(answer.body)
    check("the volume", cinder.volume(volume)["status"], "in-use")


def extended(cloud, kilonova, cinder, server, volume):
    """Cinder's event extends the guest's disk."""
    size = cinder.volume(volume)["size"] + 1
    body = {"os-extend": {"new_size": size}}
    expect(cinder.call("POST", f"/volumes/{volume}/action", body, cloud.demo), 202)
    path = f"/servers/{server}/os-instance-actions"

    def grown():
        actions = expect(kilonova.call(cloud.demo, "GET", path), 200).json()["instanceActions"]
        return "extend_volume" in [one["action"] for one in actions]

    until("the server has the action extend_volume", grown)
    cinder.wait(volume, "in-use")
    check("the size", cinder.volume(volume)["size"], size)


def hot_plug(cloud, kilonova, cinder, volumes, journey, server, count, ports):
    """A volume of a running server, of a stopped one and of a shelved one."""
    volume = cinder.make()
    path = f"/servers/{server}/os-volume_attachments"

    def attach(verb):
        answer = expect(kilonova.call(cloud.demo, "POST", path, {"volumeAttachment": {"volumeId": volume}}), 200)
        journey.look = volumes.look(count + 1, ports)
        journey.seen(server, verb)
        return answer.json()["volumeAttachment"]

    def detach(verb):
        expect(kilonova.call(cloud.demo, "DELETE", f"{path}/{volume}"), 202)
        cinder.wait(volume, "available")
        journey.look = volumes.look(count, ports)
        journey.seen(server, verb)

    attach("attach")
    guarded(cloud, cinder, volume)
    extended(cloud, kilonova, cinder, server, volume)
    expect(kilonova.call(cloud.demo, "POST", path, {"volumeAttachment": {"volumeId": volume}}), 400)
    detach("detach")
    journey.do(server, "stop", {"os-stop": None}, "SHUTOFF")
    attach("attach to a stopped server")
    journey.do(server, "start", {"os-start": None}, "ACTIVE")
    detach("detach after the start")
    expect(kilonova.call(cloud.demo, "POST", f"/servers/{server}/action", {"shelve": None}), 202)
    kilonova.wait(cloud.admin, server, "SHELVED_OFFLOADED")
    expect(kilonova.call(cloud.demo, "POST", path, {"volumeAttachment": {"volumeId": volume}}), 200)
    cinder.wait(volume, "in-use")
    check("the host", [one["host_name"] for one in cinder.volume(volume)["attachments"]], [None])
    print("    attach to a shelved server: in-use, an attachment without a host")
    journey.look = volumes.look(count + 1, ports)
    journey.do(server, "unshelve", {"unshelve": None}, "ACTIVE")
    detach("detach after the unshelve")
    cinder.drop(volume)


def ended(cinder, server, kept=(), dropped=()):
    """After the server's deletion its volumes are available, or deleted with it."""
    until("the server's attachments are gone", lambda: not cinder.attachments(server))
    for volume in kept:
        cinder.wait(volume, "available")
        check("the attachments", cinder.volume(volume)["attachments"], [])
    for volume in dropped:
        until("the volume is deleted with its server", lambda: cinder.volume(volume) is None)


def image_and_data(cloud, kilonova, cinder, volumes, journey, image, network, ports):
    """A server with a root disk from an image, an existing volume and a new one."""
    data = cinder.make()
    mappings = [
        {"uuid": image, "source_type": "image", "destination_type": "local", "boot_index": 0, "delete_on_termination": True},
        {"uuid": data, "source_type": "volume", "destination_type": "volume", "boot_index": -1},
        {"source_type": "blank", "destination_type": "volume", "volume_size": 1, "boot_index": -1,
         "delete_on_termination": True, **({"volume_type": cinder.kind} if cinder.kind else {})},
    ]
    journey.look = volumes.look(2, ports)
    server = journey.boot(imageRef=image, networks=[{"uuid": network}], block_device_mapping_v2=mappings)
    journey.seen(server, "create with an existing and a new volume")
    blank = next(one["volume_id"] for one in cinder.attachments(server) if one["volume_id"] != data)
    check("the name of the new volume", cinder.volume(blank)["name"], f"{server}-blank-vol")
    hot_plug(cloud, kilonova, cinder, volumes, journey, server, 2, ports)
    journey.look = volumes.look(2, ports)
    journey.all(server, image)
    journey.delete(server)
    ended(cinder, server, [data], [blank])
    cinder.drop(data)


def roots(cloud, kilonova, cinder, volumes, journey, image, network, ports):
    """Servers whose root disk is a volume: from an image, from a snapshot, and an existing one."""
    journey.look = volumes.look(1, ports)
    kind = {"volume_type": cinder.kind} if cinder.kind else {}
    new = {"destination_type": "volume", "boot_index": 0, "volume_size": 1, **kind}
    mapping = {**new, "uuid": image, "source_type": "image", "delete_on_termination": True}
    server = journey.boot(networks=[{"uuid": network}], block_device_mapping_v2=[mapping])
    journey.seen(server, "create with a root volume of an image")
    check("the image of the server", kilonova.server(cloud.demo, server)["image"], "")
    root = cinder.attachments(server)[0]["volume_id"]
    check("the image of the volume", cinder.volume(root)["volume_image_metadata"]["image_id"], image)
    journey.all(server, None)
    backup = {"createBackup": {"name": "no", "backup_type": "daily", "rotation": 1}}
    for action, status in (({"rescue": None}, 400), (backup, 400)):
        expect(kilonova.call(cloud.demo, "POST", f"/servers/{server}/action", action), status)
    imaged(cloud, kilonova, cinder, volumes, journey, server, network, ports)
    body = {"snapshot": {"volume_id": root, "force": True, "name": "of the root"}}
    snapshot = expect(cinder.call("POST", "/snapshots", body, cloud.demo), 202).json()["snapshot"]["id"]
    until("the snapshot is available",
          lambda: cinder.call("GET", f"/snapshots/{snapshot}").json()["snapshot"]["status"] == "available")
    mapping = {**new, "uuid": snapshot, "source_type": "snapshot"}
    second = journey.boot(networks=[{"uuid": network}], block_device_mapping_v2=[mapping])
    journey.seen(second, "create with a root volume of a snapshot")
    other = cinder.attachments(second)[0]["volume_id"]
    journey.delete(second)
    ended(cinder, second, [other])
    mapping = {"uuid": other, "source_type": "volume", "destination_type": "volume", "boot_index": 0}
    third = journey.boot(networks=[{"uuid": network}], block_device_mapping_v2=[mapping])
    journey.seen(third, "create with an existing root volume")
    journey.delete(third)
    ended(cinder, third, [other])
    cinder.drop(other)
    expect(cinder.call("DELETE", f"/snapshots/{snapshot}"), 202)
    until("the snapshot is gone", lambda: cinder.call("GET", f"/snapshots/{snapshot}").status == 404)
    journey.delete(server)
    ended(cinder, server, [], [root])


def imaged(cloud, kilonova, cinder, volumes, journey, server, network, ports):
    """An image of a server's volumes, and a server that boots from it."""
    path = f"/servers/{server}/action"
    answer = expect(kilonova.call(cloud.demo, "POST", path, {"createImage": {"name": "of volumes"}}), 202)
    made = answer.json()["image_id"]
    shown = expect(call("GET", f"{cloud.glance}/v2/images/{made}", cloud.demo), 200).json()
    check("the image", (shown["status"], shown["size"], shown["bdm_v2"]), ("active", 0, "True"))
    snapshots = [one["snapshot_id"] for one in json.loads(shown["block_device_mapping"])]

    def available(snapshot):
        return cinder.call("GET", f"/snapshots/{snapshot}").json()["snapshot"]["status"] == "available"

    until("the snapshots are available", lambda: all(map(available, snapshots)))
    second = journey.boot(imageRef=made, networks=[{"uuid": network}])
    journey.seen(second, "create from an image of volumes")
    check("the image of the server", kilonova.server(cloud.demo, second)["image"], "")
    root = cinder.attachments(second)[0]["volume_id"]
    check("the snapshot of the volume", cinder.volume(root)["snapshot_id"], snapshots[0])
    journey.delete(second)
    ended(cinder, second, [], [root])
    expect(call("DELETE", f"{cloud.glance}/v2/images/{made}", cloud.demo), 204)
    for snapshot in snapshots:
        expect(cinder.call("DELETE", f"/snapshots/{snapshot}", token=cloud.demo), 202)
        until("the snapshot is gone", lambda: cinder.call("GET", f"/snapshots/{snapshot}").status == 404)


def refused(cloud, kilonova, cinder, journey, image, network):
    """Volumes that a server cannot have leave no attachments and no reservations."""
    def attempt(status, words, **mapping):
        mapping = {"source_type": "volume", "destination_type": "volume", "boot_index": -1, **mapping}
        body = {"name": "no", "flavorRef": journey.flavors[0], "imageRef": image, "networks": [{"uuid": network}],
                "block_device_mapping_v2": [{"uuid": image, "source_type": "image", "destination_type": "local", "boot_index": 0}, mapping]}
        answer = expect(kilonova.call(cloud.demo, "POST", "/servers", {"server": body}), status)
        if words not in answer.body.decode():
            raise Wrong(f"{answer.body!r} instead of {words!r}")

    attempt(400, "failed to get volume", uuid="11111111-2222-4333-8444-555555555555")
    foreign = expect(cinder.call("POST", "/volumes", {"volume": {"size": 1, "volume_type": cinder.kind}}), 202).json()["volume"]["id"]
    cinder.wait(foreign, "available")
    attempt(400, "failed to get volume", uuid=foreign)
    cinder.drop(foreign)
    busy = cinder.make()
    body = {"attachment": {"volume_uuid": busy, "instance_uuid": "11111111-2222-4333-8444-555555555555"}}
    expect(cinder.call("POST", "/attachments", body, cloud.demo, "3.44"), 200)
    attempt(400, "Invalid volume", uuid=busy)
    attachment = cinder.attachments("11111111-2222-4333-8444-555555555555")[0]["id"]
    expect(cinder.call("DELETE", f"/attachments/{attachment}", token=cloud.demo, version="3.44"), 200)
    cinder.drop(busy)
    check("the attachments", cinder.attachments(), [])


def scene(cloud, kilonova):
    neutron, cinder = Neutron(cloud), Cinder(cloud)
    ports, volumes = Ports(neutron, kilonova).look(1), Volumes(cinder, kilonova)
    image = cloud.upload("cirros")
    network = neutron.network("192.0.2.0/24", name="inside")
    journey = Journey(cloud, kilonova, None)
    refused(cloud, kilonova, cinder, journey, image, network)
    image_and_data(cloud, kilonova, cinder, volumes, journey, image, network, ports)
    roots(cloud, kilonova, cinder, volumes, journey, image, network, ports)
    check("the attachments that are left", cinder.attachments(), [])
    journey.end()
    neutron.drop(f"/networks/{network}")
    for one in cloud.images():
        if one["id"] == image:
            expect(call("DELETE", f"{cloud.glance}/v2/images/{one['id']}", cloud.admin), 204)


def settings(cloud):
    """The settings of a controller with the external Neutron and Cinder."""
    login = {**Kilonova.login(cloud), "send_service_user_token": "true"}
    return cloud_ports.settings(cloud, Neutron(cloud), service_user=login, cinder={"os_region_name": cloud.region})


def run(program):
    cloud = Cloud()
    play("cloud_volumes", program, scene, cloud, **settings(cloud))


if __name__ == "__main__":
    sys.exit(main(__doc__, "cloud_volumes", run, lacking))
