#!/usr/bin/env python3
"""Runs Kilonova in the place of Nova and Placement beside a real Keystone, Glance and Neutron, with ports whose QoS policies guarantee
bandwidth, and checks the claims after each operation.

    scripts/cloud_qos.py [--kilonova PROGRAM] [--counts FILE]

cloud_stage.py says how the environment names the cloud. The catalog's endpoints of types compute and placement must be the same free
port of 127.0.0.1, the latter with the path /placement, where Kilonova then listens; Neutron's own login for Placement must be valid. The
agents must have `resource_provider_bandwidths` for a bridge of the physical network that KILONOVA_CLOUD_PHYSNET names (default
physnet1). KILONOVA_CLOUD_HOSTS is as for cloud_ports.py; with two such hosts the server also moves.
"""

import os
import sys
import urllib.parse

from cloud_ports import Neutron, free, hosts, settings
from cloud_ports import lacking as lacks_ports
from cloud_stage import Cloud, Journey, call, check, expect, main, play, until

CLASS = "NET_BW_EGR_KILOBIT_PER_SEC"
PHYSNET = os.environ.get("KILONOVA_CLOUD_PHYSNET", "physnet1")
# How long Neutron takes to report its agents again after Placement could not be reached.
REPORTED = 90


class Placement:
    """A client of Kilonova's Placement, as an admin."""

    def __init__(self, cloud):
        self.cloud, self.url = cloud, cloud.endpoint("placement")

    def get(self, path):
        headers = {"OpenStack-API-Version": "placement 1.39"}
        return expect(call("GET", self.url + path, self.cloud.admin, headers=headers), 200).json()

    def bridges(self):
        """The providers of bandwidth by host."""
        found, trait = {}, "CUSTOM_PHYSNET_" + PHYSNET.upper()
        if trait not in self.get(f"/traits?name=startswith:{trait}")["traits"]:
            return found
        for one in self.get(f"/resource_providers?required={trait}")["resource_providers"]:
            root = self.get(f"/resource_providers?uuid={one['root_provider_uuid']}")["resource_providers"][0]
            if CLASS in self.get(f"/resource_providers/{one['uuid']}/inventories")["inventories"]:
                found[root["name"]] = one["uuid"]
        return found

    def used(self, provider):
        return self.get(f"/resource_providers/{provider}/usages")["usages"][CLASS]


class Scene:
    """The server, its port, and what Neutron and Placement must show."""

    def __init__(self, cloud, kilonova):
        self.cloud, self.kilonova = cloud, kilonova
        self.neutron, self.placement = Neutron(cloud), Placement(cloud)
        named = set(self.neutron.with_bandwidth(PHYSNET)) & set(hosts(self.neutron))

        def reported():
            found = self.placement.bridges()
            return found if named <= set(found) else None

        self.bridges = until(f"Neutron reports the bandwidth of {sorted(named)}", reported, REPORTED)
        self.policies = []

    def policy(self, *rates):
        """A policy with a rule for each rate, of egress and then of ingress."""
        body = {"policy": {"name": f"at least {rates}", "shared": True}}
        policy = expect(self.neutron.call("POST", "/qos/policies", body), 201).json()["policy"]["id"]
        self.policies.append(policy)
        for rate, direction in zip(rates, ("egress", "ingress")):
            rule = {"minimum_bandwidth_rule": {"min_kbps": rate, "direction": direction}}
            expect(self.neutron.call("POST", f"/qos/policies/{policy}/minimum_bandwidth_rules", rule), 201)
        return policy

    def set_policy(self, port, policy, *statuses):
        return expect(self.neutron.call("PUT", f"/ports/{port}", {"port": {"qos_policy_id": policy}}), *(statuses or (200,)))

    def claimed(self, server, port, amounts, when):
        """Waits until each host's bridge has this usage, and the port's binding names the provider of the server's host."""
        host = self.kilonova.server(self.cloud.admin, server)["OS-EXT-SRV-ATTR:host"] if server else None
        found = []

        def settled():
            used = {name: self.placement.used(bridge) for name, bridge in self.bridges.items()}
            shown = self.neutron.port(port)
            named = set((shown["binding:profile"].get("allocation") or {}).values())
            found[:] = [used, named]
            wanted = {name: amounts if name == host else 0 for name in self.bridges}
            return used == wanted and named == ({self.bridges[host]} if host and amounts else set())

        until(lambda: f"the claims after {when} (of {amounts} on {host}): {found}", settled, 60)
        print(f"    {when}: {amounts} kbit/s claimed on {host or 'no host'}", flush=True)


def scene(cloud, kilonova):
    qos = Scene(cloud, kilonova)
    neutron = qos.neutron
    image = cloud.upload("cirros")
    physical = {"provider:network_type": "flat", "provider:physical_network": PHYSNET}
    network = neutron.network("198.51.100.0/24", name="physical", **physical)
    port = neutron.supplied(network)
    low, high, most = qos.policy(1000), qos.policy(3000), qos.policy(2_000_000_000)
    journey = Journey(cloud, kilonova, lambda verb, shown: verb)
    qos.set_policy(port, most)
    server = journey.boot("ERROR", imageRef=image, networks=[{"port": port}])
    fault = kilonova.server(cloud.admin, server)["fault"]
    check("the fault", fault["message"].startswith("No valid host was found."), True)
    journey.delete(server)
    free(neutron, port)

    qos.set_policy(port, low)
    server = journey.boot(imageRef=image, networks=[{"port": port}])
    qos.claimed(server, port, 1000, "create")
    qos.set_policy(port, high)
    qos.claimed(server, port, 3000, "another policy")
    journey.do(server, "hard reboot", {"reboot": {"type": "HARD"}}, "ACTIVE")
    qos.claimed(server, port, 3000, "a hard reboot")
    answer = qos.set_policy(port, most, 409)
    print(f"    more than the host offers: {answer.json()['NeutronError']['message']}")
    qos.claimed(server, port, 3000, "a refused policy")
    qos.set_policy(port, low)
    qos.claimed(server, port, 1000, "the first policy again")
    attached(qos, journey, server, port, network, high)
    if len(qos.bridges) > 1:
        moves(qos, journey, server, port)
    qos.set_policy(port, None)
    qos.claimed(server, port, 0, "no policy")
    # Neutron enforces it without a claim.
    qos.set_policy(port, low)
    journey.do(server, "hard reboot", {"reboot": {"type": "HARD"}}, "ACTIVE")
    qos.claimed(server, port, 0, "a policy of a port that had none")
    journey.delete(server)
    until("the server's ports are gone", lambda: not neutron.ports(server))
    qos.claimed(None, port, 0, "delete")
    free(neutron, port)
    journey.end()
    neutron.drop(f"/ports/{port}")
    neutron.drop(f"/networks/{network}")
    for policy in qos.policies:
        neutron.drop(f"/qos/policies/{policy}")
    expect(call("DELETE", f"{cloud.glance}/v2/images/{image}", cloud.admin), 204)


def attached(qos, journey, server, port, network, policy):
    """A second port with a guarantee is attached and detached."""
    second = qos.neutron.supplied(network)
    qos.set_policy(second, policy)
    body = {"interfaceAttachment": {"port_id": second}}
    expect(qos.kilonova.call(qos.cloud.demo, "POST", f"/servers/{server}/os-interface", body), 200)
    qos.claimed(server, port, 4000, "attach")
    expect(qos.kilonova.call(qos.cloud.demo, "DELETE", f"/servers/{server}/os-interface/{second}"), 202)
    qos.claimed(server, port, 1000, "detach")
    free(qos.neutron, second)
    qos.neutron.drop(f"/ports/{second}")
    journey.seen(server, "attach and detach")


def moves(qos, journey, server, port):
    admin = qos.cloud.admin
    journey.moved("migrate", journey.do(server, "cold migration", {"migrate": None}, "VERIFY_RESIZE", admin))
    journey.do(server, "confirmation", {"confirmResize": None}, "ACTIVE", statuses=(202, 204))
    qos.claimed(server, port, 1000, "a cold migration")
    live = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
    journey.moved("live migration", journey.do(server, "live migration", live, "ACTIVE", admin))
    qos.claimed(server, port, 1000, "a live migration")
    journey.evacuate(server)
    qos.claimed(server, port, 1000, "an evacuation")
    journey.do(server, "shelve", {"shelve": None}, "SHELVED_OFFLOADED")
    qos.claimed(server, port, 0, "shelve")
    journey.do(server, "unshelve", {"unshelve": None}, "ACTIVE")
    qos.claimed(server, port, 1000, "unshelve")


def lacking():
    cloud = Cloud()
    compute, placement = [urllib.parse.urlsplit(cloud.endpoint(kind) or "") for kind in ("compute", "placement")]
    if why := lacks_ports():
        return why
    if (placement.hostname, placement.port, placement.path) != (compute.hostname, compute.port, "/placement"):
        return "the catalog's endpoint of placement is not /placement at that of compute"
    if not Neutron(cloud).with_bandwidth(PHYSNET):
        return f"no agent has resource_provider_bandwidths for {PHYSNET}"
    return ""


def run(program):
    cloud = Cloud()
    play("cloud_qos", program, scene, cloud, **settings(cloud, Neutron(cloud)))


if __name__ == "__main__":
    sys.exit(main(__doc__, "cloud_qos", run, lacking))
