"""Guests on a VLAN across both hosts: their addresses, the packet filters, and answers to ping."""

import os
import textwrap

from host import clean, of, other

NET, RANGE, FIXED, BORROWED = "blue", "10.77.0.0/24", "10.77.0.50", "10.77.0.99"
# Pings another guest, first with the guest's own address, then with a foreign one.
CALLER = """\
    #!/bin/sh
    until ping -c 1 -W 2 {there} >/dev/null 2>&1; do sleep 1; done
    echo "caller: {there} answers" >/dev/console
    card=$(ip -4 -o addr show | awk '$4 ~ /^10[.]77/ {{print $2; exit}}')
    ip addr add {borrowed}/24 dev $card
    if ping -c 3 -W 2 -I {borrowed} {there} >/dev/null 2>&1; then output=answers; else output="does not answer"; fi
    echo "caller: as {borrowed}, {there} $output" >/dev/console
    ip addr del {borrowed}/24 dev $card
    ip route add 169.254.169.254/32 dev $card
    uuid=$(timeout 10 wget -q -O - http://169.254.169.254/openstack/latest/meta_data.json | grep -o '"uuid":"[^"]*"')
    echo "caller: the metadata service says $uuid" >/dev/console
    """


def ping(node, network, address):
    """Returns whether a guest answers a ping from its host's DHCP namespace."""
    code, _ = node.attempt(f"nsenter --net=/proc/$(cat /run/kilonova/network/{network}/pid)/ns/net "
                           f"ping -c 1 -W 3 {address}")
    return code == 0


def answers(node, network, address, what):
    """Waits for the answer to a ping."""
    node.until("true", lambda _: ping(node, network, address), f"{address} answers its host {what}", timeout=60)


def left(node):
    """The network objects left on a node."""
    return node.run("ip -o link | grep -oE '(brq|tap|kv|kd|ku|kp)[0-9a-f-]{8,}' | sort -u; "
                    "nft list tables | grep kilonova; pgrep -a dnsmasq; true")


def on(lab, name, node, network, *more, drive="true"):
    """A server on a node and its address."""
    server = lab.cloud.boot("plain", name, "--host", node.name, *more, network=network, drive=drive)
    found = [entry["addr"] for entry in server["addresses"].get(NET, [])]
    lab.tick(f"{name} is on {node.name} and has one address", len(found) == 1, str(server["addresses"]))
    return server["id"], found[0]


def made(lab):
    """Creates the network, its subnet and a port with a chosen address; returns the network's id."""
    cloud = lab.cloud
    network = cloud.run("network", "create", "--provider-network-type", "vlan",
                        "--provider-physical-network", "lan", "--provider-segment", "101", NET,
                        "-c", "id", "-c", "name", "-c", "status").table["id"]
    cloud.run("subnet", "create", "--network", NET, "--subnet-range", RANGE, f"{NET}-v4",
              "-c", "cidr", "-c", "enable_dhcp", "-c", "gateway_ip")
    cloud.run("port", "create", "--network", NET, "--fixed-ip", f"subnet={NET}-v4,ip-address={FIXED}", "kept",
              "-c", "fixed_ips", "-c", "status")
    return network


def addressed(lab, ident, address, how):
    """Checks that the guest has the address and the MAC address of its port."""
    log = lab.cloud.guest_log(ident)
    port = lab.cloud.run("port", "list", "--server", ident).table.rows[0]
    wanted = (port["MAC Address"], [f"{address}/24"])
    lab.tick(f"the guest has its address by {how}", wanted in log.addresses, f"{wanted}, {log.addresses}")


def run(lab):
    """Three guests: by config drive, by an existing port, by DHCP."""
    lab.heading("Guests on a network across both hosts")
    cloud, (here, there) = lab.cloud, lab.nodes
    network = made(lab)
    first, address = on(lab, "first", here, f"net-id={network}")
    addressed(lab, first, address, "config drive")
    third, leased = on(lab, "third", here, f"net-id={network}", drive="false")
    addressed(lab, third, leased, "DHCP")
    lab.tick("without a rule a ping gets no answer", not ping(here, network, address))
    cloud.run("security", "group", "rule", "create", "--protocol", "icmp", "default", "-c", "protocol", "-c", "direction")
    answers(here, network, address, "once a rule allows it")
    answers(here, network, leased, "too")
    lab.tick("the first and the third guest answer a ping from their host")
    script = os.path.join(cloud.folder, "caller.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(CALLER).format(there=address, borrowed=BORROWED))
    second, fixed = on(lab, "second", there, "port-id=kept", "--user-data", script)
    lab.tick("the server has the address of the existing port", fixed == FIXED, fixed)
    addressed(lab, second, fixed, "config drive")
    log = cloud.guest_log(second, lambda s: f"as {BORROWED}" in s.text, "it pinged the first guest")
    lab.tick("the first guest answers from the other host", f"caller: {address} answers" in log.text)
    lab.tick("a foreign source address gets no answer",
             f"as {BORROWED}, {address} does not answer" in log.text, log.text[-400:])
    log = cloud.guest_log(second, lambda s: "metadata service says" in s.text, "it asked for its metadata")
    lab.tick("the metadata service returns the guest's uuid", f'says "uuid":"{second}"' in log.text, log.text[-400:])
    cloud.run("server", "delete", "third", "--wait")
    moved(lab, first, network, address)
    gone(lab, network, [first, second])


def moved(lab, ident, network, address):
    """After a live migration the guest answers on the new host, and the old host has nothing of the network."""
    here = of(lab, lab.cloud.server(ident)["OS-EXT-SRV-ATTR:host"])
    there = other(lab, here.name)
    lab.cloud.run("server", "migrate", "--live-migration", "--block-migration", "--host", there.name, ident)
    server = lab.cloud.status(ident, "ACTIVE")
    lab.tick(f"the server is on {there.name}", server["OS-EXT-SRV-ATTR:host"] == there.name)
    answers(there, network, address, "after a live migration")
    lab.tick("after a live migration the guest answers a ping from its new host")
    here.until("true", lambda _: not left(here), f"{here.name} has nothing left of the network", timeout=60)
    lab.tick(f"nothing of the network is left on {here.name}")


def gone(lab, network, idents):
    """Without guests the hosts have nothing of the network, and it can be deleted."""
    rule = [row["ID"] for row in lab.cloud.run("security", "group", "rule", "list", "default").table.rows
            if row["IP Protocol"] == "icmp"]
    lab.cloud.run("security", "group", "rule", "delete", *rule)
    node = lab.nodes[1]
    node.until("true", lambda _: not ping(node, network, FIXED), "without the rule there is no answer", timeout=60)
    lab.tick("without the rule a ping gets no answer again")
    lab.cloud.delete(*idents)
    clean(lab)
    for node in lab.nodes:
        node.until("true", lambda _, node=node: not left(node), f"{node.name} has nothing left of the network", timeout=60)
        lab.tick(f"nothing of the network is left on {node.name}")
    kept = lab.cloud.run("port", "list", "--network", NET).table.column("Name")
    lab.tick("only the port that existed before is left", "kept" in kept, str(kept))
    lab.cloud.run("port", "delete", "kept")
    lab.cloud.run("network", "delete", NET)
    lab.cloud.doctor()
