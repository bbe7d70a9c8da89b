#!/usr/bin/env python3
"""Runs the network commands of the stock client, and servers on networks, against `kilonova serve`.

    scripts/network_clients.py [--kilonova PROGRAM] [--database URL] [--verbose]

Creates, lists, shows, changes and deletes networks, subnets, ports and security groups; attaches new and
existing ports to servers, adds and removes interfaces, and migrates a server with its port; connects a network
with an external one by a router, and gives a server a floating IP. Exits with 1 at the first check
that fails.
"""

import json
import os
import sys
import time

from cli import Lane
from frame import options_of, parsed, tell


class Story:
    """The client, with JSON output."""

    def __init__(self, lane):
        self.lane = lane

    def json(self, *command):
        """Runs a command. Returns its parsed output."""
        return json.loads(self.lane.run(*command, "-f", "json").out)

    def run(self, *commands):
        """Runs commands that print nothing, one after the other."""
        for command in commands:
            self.lane.run(*command)

    def refused(self, command, why):
        """Runs a command that must be refused; `why` is the expected message."""
        answer = self.lane.run(*command, fails=True)
        said = " ".join((answer.out + answer.err).split())
        self.lane.tick(f"refused: {why}", why in said, said[-400:])

    def check(self, text, found, wanted):
        """Checks a value."""
        self.lane.tick(text, found == wanted, f"it is {found}, not {wanted}")


def step_networks(story):
    """Networks and subnets."""
    story.lane.say("\n== networks and subnets")
    net = story.json("network", "create", "private")
    story.check("made", (net["name"], net["status"]), ("private", "ACTIVE"))
    flat = story.json("network", "create", "--share", "--provider-network-type", "flat",
                      "--provider-physical-network", "physnet1", "outside")
    story.check("flat and shared", (flat["provider:network_type"], flat["shared"]), ("flat", True))
    subnet = story.json("subnet", "create", "--network", "private", "--subnet-range",
                        "10.20.0.0/24", "--dns-nameserver", "9.9.9.9", "--allocation-pool",
                        "start=10.20.0.10,end=10.20.0.99", "four")
    story.check("with its gateway", subnet["gateway_ip"], "10.20.0.1")
    story.json("subnet", "create", "--network", "private", "--ip-version", "6", "--subnet-range",
               "fd20::/64", "six")
    story.run(["network", "set", "--description", "ours", "--tag", "blue", "private"],
              ["subnet", "set", "--no-dhcp", "four"],
              ["subnet", "unset", "--dns-nameserver", "9.9.9.9", "four"])
    shown = story.json("network", "show", "private")
    story.check("changed", (shown["description"], shown["tags"], len(shown["subnets"])),
                ("ours", ["blue"], 2))
    shown = story.json("subnet", "show", "four")
    story.check("the subnet too", (shown["enable_dhcp"], shown["dns_nameservers"]), (False, []))
    story.run(["network", "unset", "--all-tag", "private"])
    names = sorted(row["Name"] for row in story.json("network", "list"))
    story.check("listed", names, ["outside", "private"])
    names = sorted(row["Name"] for row in story.json("subnet", "list", "--network", "private"))
    story.check("subnets too", names, ["four", "six"])
    story.refused(["network", "create", "--provider-network-type", "flat",
                   "--provider-physical-network", "nope", "lost"],
                  "physical_network 'nope' unknown for flat provider network")
    story.refused(["network", "show", "nowhere"], "No Network found for nowhere")
    story.refused(["subnet", "create", "--network", "private", "--subnet-range", "10.20.0.0/25",
                   "again"], "overlaps with another subnet")


def step_groups(story):
    """Security groups and their rules."""
    story.lane.say("\n== security groups")
    groups = story.json("security", "group", "list")
    story.check("there is a default", [row["Name"] for row in groups], ["default"])
    made = story.json("security", "group", "create", "--description", "web servers", "web")
    story.check("made", made["name"], "web")
    rule = story.json("security", "group", "rule", "create", "--protocol", "tcp", "--dst-port",
                      "80:81", "--remote-ip", "10.0.0.0/8", "web")
    story.check("with a rule", (rule["port_range_min"], rule["port_range_max"]), (80, 81))
    rules = story.json("security", "group", "rule", "list", "web")
    story.check("and two that allow all egress", len(rules), 3)
    story.json("security", "group", "rule", "show", rule["id"])
    story.refused(["security", "group", "rule", "create", "--protocol", "tcp", "--dst-port",
                   "80:81", "--remote-ip", "10.0.0.0/8", "web"], "already exists")
    story.run(["security", "group", "rule", "delete", rule["id"]],
              ["security", "group", "set", "--description", "any", "web"])
    story.check("changed", story.json("security", "group", "show", "web")["description"], "any")
    # Cleanup tools delete the default group; the next list creates it again.
    story.run(["security", "group", "delete", "default"])
    story.check("there is a default again", "default" in
                [row["Name"] for row in story.json("security", "group", "list")], True)


def step_ports(story):
    """Ports."""
    story.lane.say("\n== ports")
    port = story.json("port", "create", "--network", "private", "--fixed-ip",
                      "ip-address=10.20.0.50", "--security-group", "web", "mine")
    story.check("with its address", port["fixed_ips"][0]["ip_address"], "10.20.0.50")
    story.run(["port", "set", "--name", "ours", "--description", "d", "mine"])
    shown = story.json("port", "show", "ours")
    story.check("changed", (shown["description"], shown["status"]), ("d", "DOWN"))
    story.run(["port", "unset", "--security-group", "web", "ours"],
              ["port", "set", "--allowed-address", "ip-address=10.20.0.60", "ours"])
    rows = story.json("port", "list", "--network", "private", "--long")
    story.check("listed, with their owners",
                sorted((row["Name"], row["Device Owner"]) for row in rows),
                [("", "network:dhcp"), ("ours", "")])
    story.refused(["port", "create", "--network", "private", "--fixed-ip",
                   "ip-address=10.20.0.50", "other"], "already allocated")
    story.refused(["network", "delete", "private"], "ports still in use")


def step_servers(story):
    """Servers on networks."""
    story.lane.say("\n== servers")
    story.refused(["server", "create", "--flavor", "plain", "--image", "tiny", "s0"],
                  "Multiple possible networks found")
    server = story.json("server", "create", "--flavor", "plain", "--image", "tiny", "--network",
                        "private", "--port", "ours", "--security-group", "web", "--wait", "s1")
    addresses = server["addresses"]["private"]
    story.check("three addresses", len(addresses), 3)
    story.check("the port's address is among them", "10.20.0.50" in addresses, True)
    listed = story.json("server", "list")
    story.check("listed with them", len(listed[0]["Networks"]["private"]), 3)
    ports = story.json("port", "list", "--server", "s1", "--long")
    story.check("two ports", len(ports), 2)
    story.check("which are up", {row["Status"] for row in ports}, {"ACTIVE"})
    story.refused(["port", "delete", "ours"], "in use by server")
    story.run(["server", "add", "network", "s1", "private"])
    story.check("a third", len(story.json("port", "list", "--server", "s1")), 3)
    story.run(["server", "remove", "port", "s1", "ours"],
              ["server", "add", "port", "s1", "ours"],
              ["server", "add", "fixed", "ip", "--fixed-ip-address", "10.20.0.77", "s1", "private"])
    story.check("and a fourth", len(story.json("port", "list", "--server", "s1")), 4)
    story.run(["server", "remove", "network", "s1", "private"])
    story.check("all ports on the network are gone from the server", story.json("port", "list", "--server", "s1"), [])
    story.check("but the existing port remains", story.json("port", "show", "ours")["status"], "DOWN")
    story.run(["server", "add", "port", "s1", "ours"],
              ["server", "add", "security", "group", "s1", "web"])
    groups = {row["name"] for row in story.json("server", "show", "s1")["security_groups"]}
    story.check("one more group", "web" in groups, True)
    story.run(["server", "remove", "security", "group", "s1", "web"])
    before = story.json("port", "show", "ours")["binding_host_id"]
    story.run(["server", "migrate", "--wait", "s1"], ["server", "migrate", "confirm", "s1"])
    after = story.json("port", "show", "ours")["binding_host_id"]
    story.check("the port moved with the server", (bool(after), after != before), (True, True))
    story.run(["server", "delete", "--wait", "s1"])
    story.check("the port is free", story.json("port", "show", "ours")["device_id"], "")


def step_routers(story):
    """Routers and floating IPs."""
    story.lane.say("\n== routers and floating IPs")
    story.json("network", "create", "--external", "--provider-network-type", "vlan",
               "--provider-physical-network", "physnet1", "--provider-segment", "99", "street")
    story.json("subnet", "create", "--network", "street", "--no-dhcp", "--subnet-range",
               "198.51.100.0/24", "--gateway", "198.51.100.1", "street4")
    router = story.json("router", "create", "--description", "out", "r")
    story.check("made", (router["name"], router["external_gateway_info"]), ("r", None))
    story.run(["router", "set", "--external-gateway", "street", "r"],
              ["router", "add", "subnet", "r", "four"])
    shown = story.json("router", "show", "r")
    gateway = shown["external_gateway_info"]
    story.check("with a gateway", gateway["enable_snat"], True)
    story.check("and an interface", [one["ip_address"] for one in shown["interfaces_info"]],
                ["10.20.0.1"])
    story.check("listed", [row["Name"] for row in story.json("router", "list", "--long")], ["r"])
    host = patiently(lambda: story.json("port", "list", "--router", "r", "--long"),
                     lambda ports: {row["Status"] for row in ports} == {"ACTIVE"})
    story.check("a host realizes it", {row["Status"] for row in host}, {"ACTIVE"})
    server = story.json("server", "create", "--flavor", "plain", "--image", "tiny", "--nic",
                        "net-id=private,v4-fixed-ip=10.20.0.70", "--wait", "s2")
    floating = story.json("floating", "ip", "create", "--description", "for s2", "street")
    address = floating["floating_ip_address"]
    story.check("a floating IP", (floating["port_id"], address.startswith("198.51.100.")),
                (None, True))
    story.run(["server", "add", "floating", "ip", "s2", address])
    story.check("is the server's", address in
                story.json("server", "show", "s2")["addresses"]["private"], True)
    shown = story.json("floating", "ip", "show", address)
    story.check("by its router", (shown["fixed_ip_address"], shown["router_id"]),
                ("10.20.0.70", router["id"]))
    listed = story.json("floating", "ip", "list", "--router", "r")
    story.check("listed", [row["Floating IP Address"] for row in listed], [address])
    story.refused(["router", "remove", "subnet", "r", "four"],
                  "required by one or more floating IPs")
    story.refused(["router", "unset", "--external-gateway", "r"],
                  "required by one or more floating IPs")
    story.refused(["router", "delete", "r"], "still has ports")
    story.run(["server", "remove", "floating", "ip", "s2", address],
              ["floating", "ip", "set", "--port",
               story.json("port", "list", "--server", "s2")[0]["ID"], address],
              ["floating", "ip", "unset", "--port", address],
              ["floating", "ip", "set", "--tag", "blue", address])
    story.check("free again", story.json("floating", "ip", "show", address)["status"], "DOWN")
    story.run(["router", "add", "route", "--route",
               "destination=10.99.0.0/16,gateway=10.20.0.70", "r"])
    story.check("a route", len(story.json("router", "show", "r")["routes"]), 1)
    story.run(["router", "remove", "route", "--route",
               "destination=10.99.0.0/16,gateway=10.20.0.70", "r"],
              ["router", "set", "--disable", "--name", "way", "r"])
    story.check("changed", story.json("router", "show", "way")["admin_state_up"], False)
    story.run(["server", "delete", "--wait", "s2"], ["floating", "ip", "delete", address],
              ["router", "remove", "subnet", "way", "four"], ["router", "delete", "way"],
              ["network", "delete", "street"])
    story.check("the server had it", bool(server["id"]), True)
    story.check("nothing is left", (story.json("router", "list"),
                                    story.json("floating", "ip", "list")), ([], []))


def patiently(look, is_so):
    """Polls until the value is as expected, for some seconds. Returns the last value."""
    end = time.monotonic() + 20
    while True:
        seen = look()
        if is_so(seen) or time.monotonic() > end:
            return seen
        time.sleep(0.5)


def step_quotas_and_end(story):
    """Quotas, and the end: everything is deleted."""
    story.lane.say("\n== quotas, and the end")
    story.run(["quota", "set", "--ports", "1", "admin"])
    story.refused(["port", "create", "--network", "private", "more"], "Quota exceeded")
    limits = story.json("quota", "show", "--network", "admin")
    story.check("the limit is shown", [row["Limit"] for row in limits
                                       if row["Resource"] == "ports"], [1])
    story.run(["quota", "delete", "--network", "admin"])
    story.run(["port", "delete", "ours"], ["subnet", "delete", "six"],
              ["network", "delete", "private", "outside"],
              ["security", "group", "delete", "web"])
    story.check("nothing is left", (story.json("network", "list"), story.json("subnet", "list"),
                                    story.json("port", "list")), ([], [], []))


def story_of(serve, clients, folder):
    """Runs all steps."""
    serve.start()
    lane = Lane(clients)
    story = Story(lane)
    image = os.path.join(folder, "tiny.img")
    with open(image, "wb") as file:
        file.write(b"\0" * 1024 * 1024)
    lane.run("image", "create", "--disk-format", "raw", "--container-format", "bare", "--public",
             "--file", image, "tiny")
    lane.run("flavor", "create", "--ram", "64", "--vcpus", "1", "--disk", "1", "plain")
    for step in (step_networks, step_groups, step_ports, step_servers, step_routers,
                 step_quotas_and_end):
        step(story)
    _, code, said = serve.doctor()
    lane.tick("the audit is clean", code == 0, said[-400:])


def main():
    options = parsed(options_of(__doc__, "examples/nodes/demo.toml"))
    return tell("network clients", options, story_of)


if __name__ == "__main__":
    sys.exit(main())
