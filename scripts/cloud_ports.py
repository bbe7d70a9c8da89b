#!/usr/bin/env python3
"""Runs Kilonova in Nova's place beside a real Keystone, Glance and Neutron, and checks the ports after each operation.

    scripts/cloud_ports.py [--kilonova PROGRAM] [--counts FILE]

cloud_stage.py says how the environment names the cloud. The catalog's endpoint of type compute must be a free port of
127.0.0.1, where Kilonova then listens: Neutron sends its events there. KILONOVA_CLOUD_HOSTS names the hosts whose
agents report ports as plugged on their own (at least three, separated by spaces); by default these are the hosts of
all Open vSwitch agents that are alive.
"""

import os
import sys
import urllib.parse

from cloud_stage import Cloud, Journey, Kilonova, Wrong, call, check, expect, main, play, until

UNUSED = "nobody-maps-this"


class Neutron:
    """A client of the external Neutron, as an admin."""

    def __init__(self, cloud):
        self.cloud, self.url = cloud, cloud.endpoint("network")
        self.service, _, _ = cloud.login("nova", "service")

    def call(self, method, path, body=None, token=None):
        return call(method, f"{self.url}/v2.0{path}", token or self.cloud.admin, body)

    def make(self, kind, token=None, **body):
        path = "/" + {"security_group": "security-groups", "floatingip": "floatingips"}.get(kind, f"{kind}s")
        return expect(self.call("POST", path, {kind: body}, token), 201).json()[kind]

    def drop(self, path):
        expect(self.call("DELETE", path), 204, 404)

    def network(self, cidr=None, **more):
        network = self.make("network", project_id=self.cloud.demo_project, **more)
        if cidr:
            self.make("subnet", network_id=network["id"], project_id=self.cloud.demo_project, ip_version=4, cidr=cidr)
        return network["id"]

    def supplied(self, network):
        """A port of the project with a key in its profile, which only services may set."""
        return self.make("port", self.service, network_id=network, project_id=self.cloud.demo_project,
                         **{"binding:profile": {"owner": "kept"}})["id"]

    def port(self, port):
        answer = expect(self.call("GET", f"/ports/{port}"), 200, 404)
        return answer.json()["port"] if answer.status == 200 else None

    def ports(self, server):
        return expect(self.call("GET", f"/ports?device_id={server}"), 200).json()["ports"]

    def bindings(self, port):
        # 400 for a port without a server.
        answer = expect(self.call("GET", f"/ports/{port}/bindings"), 200, 400, 404)
        found = answer.json()["bindings"] if answer.status == 200 else []
        return sorted((one["host"], one["status"]) for one in found)

    def alive(self):
        found = expect(self.call("GET", "/agents?agent_type=Open%20vSwitch%20agent"), 200).json()["agents"]
        return [one for one in found if one["alive"]]

    def agents(self):
        return sorted(one["host"] for one in self.alive())

    def with_bandwidth(self, physnet):
        """The hosts whose agents offer the bandwidth of a bridge of a physical network."""
        def offers(configuration):
            bridge = configuration.get("bridge_mappings", {}).get(physnet)
            return bridge in configuration.get("resource_provider_bandwidths", {})
        return sorted(one["host"] for one in self.alive() if offers(one["configurations"]))


def hosts(neutron):
    named = os.environ.get("KILONOVA_CLOUD_HOSTS", "").split()
    return named or neutron.agents()


def settings(cloud, neutron, **options):
    """The settings of a controller that Neutron's events reach."""
    compute = urllib.parse.urlsplit(cloud.endpoint("compute"))
    login = {**Kilonova.login(cloud), "region_name": cloud.region, "valid_interfaces": "public"}
    return {"hosts": hosts(neutron), "port": compute.port,
            "options": {"DEFAULT": {"vif_plugging_timeout": 60}, "neutron": login, **options}}


def lacking():
    """The reason why the run is not possible; empty if it is."""
    cloud = Cloud()
    if not cloud.endpoint("network"):
        return "the catalog has no Neutron"
    if urllib.parse.urlsplit(cloud.endpoint("compute") or "").hostname != "127.0.0.1":
        return "the catalog's endpoint of compute is not on 127.0.0.1, so Neutron's events cannot arrive"
    if len(hosts(Neutron(cloud))) < 3:
        return "fewer than three hosts have an Open vSwitch agent"
    return ""


class Ports:
    """The expected state in Neutron for a server: all its ports, bound to its host."""

    def __init__(self, neutron, kilonova):
        self.neutron, self.kilonova = neutron, kilonova
        self.groups = {}    # the security groups of ports, where they matter

    def facts(self, port):
        facts = {key: port[key] for key in ("device_id", "device_owner", "status", "dns_name")}
        facts |= {"host": port["binding:host_id"], "vif_type": port["binding:vif_type"],
                  "bindings": self.neutron.bindings(port["id"]),
                  "addresses": [one["ip_address"] for one in port["fixed_ips"]]}
        if port["id"] in self.groups:
            facts["groups"] = sorted(port["security_groups"])
        return facts

    def wanted(self, port, shown):
        host = shown["OS-EXT-SRV-ATTR:host"]
        facts = {"device_id": shown["id"], "device_owner": "compute:nova", "dns_name": shown["OS-EXT-SRV-ATTR:hostname"]}
        views = [one for some in shown["addresses"].values() for one in some]
        facts["addresses"] = [one["addr"] for one in views if one["OS-EXT-IPS-MAC:mac_addr"] == port["mac_address"]]
        if shown["status"] == "SHELVED_OFFLOADED":
            facts |= {"status": "DOWN", "host": "", "vif_type": "unbound", "bindings": [("", "ACTIVE")]}
        else:
            facts |= {"status": "ACTIVE", "host": host, "vif_type": "ovs", "bindings": [(host, "ACTIVE")]}
        if port["id"] in self.groups:
            facts["groups"] = sorted(self.groups[port["id"]])
        return facts

    def look(self, count):
        """A check of servers with this number of ports."""
        def look(verb, shown):
            seen = []

            def settled():
                ports = self.neutron.ports(shown["id"])
                shown["addresses"] = self.kilonova.server(self.neutron.cloud.admin, shown["id"])["addresses"]
                seen[:] = [(self.facts(port), self.wanted(port, shown)) for port in ports]
                return len(ports) == count and all(found == wanted and found["addresses"] for found, wanted in seen)

            until(lambda: f"Neutron's ports after {verb}: {seen}", settled, 60)
            facts = seen[0][0]
            return (f"{count} × {facts['status']}, {facts['vif_type']}, device_owner {facts['device_owner']}, bindings "
                    + ", ".join(f"{host or 'none'} {status}" for host, status in facts["bindings"]))
        return look


def free(neutron, port):
    """A supplied port is as its owner made it."""
    def settled():
        found = neutron.port(port)
        return found and not any(found[key] for key in ("device_id", "device_owner", "dns_name", "binding:host_id"))
    until(f"the supplied port {port} is free", settled)
    check("the owner's key", neutron.port(port)["binding:profile"], {"owner": "kept"})


def interfaces(cloud, kilonova, server):
    answer = expect(kilonova.call(cloud.demo, "GET", f"/servers/{server}/os-interface"), 200)
    return [one["port_id"] for one in answer.json()["interfaceAttachments"]]


def hot_plug(cloud, kilonova, neutron, journey, server, network, ports, look):
    """Ports of a running server: a new one and a supplied one."""
    supplied = neutron.supplied(network)
    path, before = f"/servers/{server}/os-interface", len(neutron.ports(server))
    for count, body in ((1, {"net_id": network}), (2, {"port_id": supplied})):
        answer = expect(kilonova.call(cloud.demo, "POST", path, {"interfaceAttachment": body}), 200)
        attached = answer.json()["interfaceAttachment"]["port_id"]
        journey.look = look(before + count)
        journey.seen(server, f"attach of {next(iter(body))}")
    check("the interfaces", sorted(interfaces(cloud, kilonova, server)), sorted(one["id"] for one in neutron.ports(server)))
    made = next(one["id"] for one in neutron.ports(server) if one["id"] not in (supplied, *ports))
    for count, port in ((1, made), (0, supplied)):
        expect(kilonova.call(cloud.demo, "DELETE", f"{path}/{port}"), 202)
        until("the interface is gone", lambda: port not in interfaces(cloud, kilonova, server))
        journey.look = look(before + count)
        journey.seen(server, "detach")
    until("the new port is gone", lambda: neutron.port(made) is None)
    check("the attached port", attached, supplied)
    free(neutron, supplied)
    neutron.drop(f"/ports/{supplied}")


def groups(cloud, kilonova, neutron, ports, journey, server):
    """Security groups are those of the ports."""
    group = neutron.make("security_group", cloud.demo, name="more")["id"]
    before = {one["id"]: one["security_groups"] for one in neutron.ports(server)}
    ports.groups = {port: [*had, group] for port, had in before.items()}
    journey.do(server, "addSecurityGroup", {"addSecurityGroup": {"name": "more"}}, "ACTIVE")
    until("the server has the group", lambda: {"name": "more"} in kilonova.server(cloud.demo, server)["security_groups"])
    ports.groups = before
    journey.do(server, "removeSecurityGroup", {"removeSecurityGroup": {"name": "more"}}, "ACTIVE")
    ports.groups = {}
    neutron.drop(f"/security-groups/{group}")


def floating(cloud, kilonova, neutron, server, network):
    """Neutron's events add the floating IP to the server's view, and remove it."""
    outside = neutron.make("network", name="outside", **{"router:external": True})["id"]
    neutron.make("subnet", network_id=outside, ip_version=4, cidr="203.0.113.0/24", enable_dhcp=False)
    router = neutron.make("router", project_id=cloud.demo_project, external_gateway_info={"network_id": outside})["id"]
    subnet = expect(neutron.call("GET", f"/networks/{network}"), 200).json()["network"]["subnets"][0]
    expect(neutron.call("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": subnet}), 200)
    port = next(one for one in neutron.ports(server) if one["network_id"] == network)
    made = neutron.make("floatingip", cloud.demo, floating_network_id=outside, port_id=port["id"])
    address = made["floating_ip_address"]

    def shown():
        lists = kilonova.server(cloud.demo, server)["addresses"].values()
        return [one["addr"] for some in lists for one in some if one["OS-EXT-IPS:type"] == "floating"]

    until("the server has its floating IP", lambda: shown() == [address])
    neutron.drop(f"/floatingips/{made['id']}")
    until("the server has no floating IP", lambda: shown() == [])
    expect(neutron.call("PUT", f"/routers/{router}/remove_router_interface", {"subnet_id": subnet}), 200)
    neutron.drop(f"/routers/{router}")
    neutron.drop(f"/networks/{outside}")


def gone(cloud, kilonova, neutron, journey, image, network):
    """A port that its owner deletes while a server has it."""
    server = journey.boot(imageRef=image, networks=[{"uuid": network}, {"uuid": network}])
    port = neutron.ports(server)[0]["id"]
    neutron.drop(f"/ports/{port}")
    until("the interface of the port is gone", lambda: len(interfaces(cloud, kilonova, server)) == 1)
    journey.delete(server)
    until("the server's ports are gone", lambda: not neutron.ports(server))


def named(cloud, kilonova, neutron, journey, image, ports):
    """A network with a domain in an external DNS: the user's token sets the port's name, and removes it."""
    network = neutron.network("198.51.100.0/24", name="named", dns_domain="guests.example.")
    supplied = neutron.supplied(network)
    journey.look = ports.look(2)
    server = journey.boot(imageRef=image, networks=[{"uuid": network}, {"port": supplied}])
    journey.seen(server, "create on a network with a domain")
    journey.delete(server)
    until("the server's ports are gone", lambda: not neutron.ports(server))
    free(neutron, supplied)
    neutron.drop(f"/ports/{supplied}")
    neutron.drop(f"/networks/{network}")


def refused(cloud, kilonova, neutron, journey, image, network):
    """Requests that Neutron refuses, and hosts that cannot connect a port."""
    def attempt(status, words, **body):
        body = {"name": "no", "flavorRef": journey.flavors[0], "imageRef": image, **body}
        answer = expect(kilonova.call(cloud.demo, "POST", "/servers", {"server": body}), status)
        if words not in answer.body.decode():
            raise Wrong(f"{answer.body!r} instead of {words!r}")

    foreign = neutron.make("network", name="foreign")["id"]
    attempt(400, f"Network {foreign} could not be found.", networks=[{"uuid": foreign}])
    neutron.drop(f"/networks/{foreign}")
    bare = neutron.network(name="bare")
    attempt(400, f"Network {bare} requires a subnet in order to boot instances on.", networks=[{"uuid": bare}])
    neutron.drop(f"/networks/{bare}")
    used = neutron.make("port", network_id=network, project_id=cloud.demo_project, device_id="somebody")["id"]
    attempt(409, f"Port {used} is still in use.", networks=[{"port": used}])
    neutron.drop(f"/ports/{used}")
    attempt(400, "Unable to find security_group with name or id 'nowhere'", networks=[{"uuid": network}], security_groups=[{"name": "nowhere"}])
    quota = f"/quotas/{cloud.demo_project}"
    count = len(expect(neutron.call("GET", f"/ports?project_id={cloud.demo_project}"), 200).json()["ports"])
    expect(neutron.call("PUT", quota, {"quota": {"port": count}}), 200)
    attempt(403, "Maximum number of ports exceeded", networks=[{"uuid": network}])
    expect(neutron.call("DELETE", quota), 204)
    # No agent maps this physical network: Neutron answers 200 with `binding_failed`.
    physical = {"provider:network_type": "flat", "provider:physical_network": UNUSED}
    nowhere = neutron.network("198.51.100.0/24", name="nowhere", **physical)
    server = journey.boot("ERROR", imageRef=image, networks=[{"uuid": nowhere}])
    fault = kilonova.server(cloud.admin, server)["fault"]["message"]
    print(f"    a network that no host has: {fault}")
    until("a failed build leaves no port", lambda: not neutron.ports(server))
    journey.delete(server)
    neutron.drop(f"/networks/{nowhere}")


def scene(cloud, kilonova):
    neutron = Neutron(cloud)
    ports = Ports(neutron, kilonova)
    image = cloud.upload("cirros")
    network = neutron.network("192.0.2.0/24", name="inside")
    supplied = neutron.supplied(network)
    journey = Journey(cloud, kilonova, ports.look(2))
    refused(cloud, kilonova, neutron, journey, image, network)
    server = journey.boot(imageRef=image, networks=[{"uuid": network}, {"port": supplied}])
    journey.seen(server, "create")
    hot_plug(cloud, kilonova, neutron, journey, server, network, [one["id"] for one in neutron.ports(server)], ports.look)
    groups(cloud, kilonova, neutron, ports, journey, server)
    floating(cloud, kilonova, neutron, server, network)
    journey.all(server, image)
    journey.delete(server)
    until("the server's ports are gone", lambda: not neutron.ports(server))
    free(neutron, supplied)
    gone(cloud, kilonova, neutron, journey, image, network)
    named(cloud, kilonova, neutron, journey, image, ports)
    journey.end()
    neutron.drop(f"/ports/{supplied}")
    neutron.drop(f"/networks/{network}")
    for one in cloud.images():
        if one["id"] == image or one.get("image_type") == "snapshot":
            expect(call("DELETE", f"{cloud.glance}/v2/images/{one['id']}", cloud.admin), 204)


def run(program):
    cloud = Cloud()
    play("cloud_ports", program, scene, cloud, **settings(cloud, Neutron(cloud)))


if __name__ == "__main__":
    sys.exit(main(__doc__, "cloud_ports", run, lacking))
