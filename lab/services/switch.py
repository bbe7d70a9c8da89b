"""Open vSwitch on a node, and Neutron's agent for it.

    guests ── br-int ── lan0 ── the other node
                └────── meta0: the metadata proxy of this node, the same MAC and IP address on each

libvirt connects a guest's tap to br-int and records the port's id. The agent follows the switch's database, assigns the
tap to its network's VLAN, and notifies Neutron. Guests reach the metadata proxy of their own node: no packet with its
address crosses lan0.
"""

import json
import queue
import subprocess
import threading

from services.neutron import BRIDGE
from stack import Wrong

METADATA, METADATA_MAC = "169.254.169.254", "fa:16:3e:ff:ff:fe"
# Forwards a request with the address of the guest and its network, as Neutron's proxy does.
PROXY = """\
#!/bin/sh
# Runs for one connection of a guest.
( read -r line
  printf '%s\\r\\n' "$(printf %s "$line" | tr -d '\\r')"
  printf 'X-Forwarded-For: %s\\r\\nX-OVN-Network-ID: {network}\\r\\nConnection: close\\r\\n' "$SOCAT_PEERADDR"
  exec cat ) | socat -t 5 - TCP:{gateway}:{port}
"""


def prepare(node, vlan, subnet, network, gateway, port):
    """Starts the switch with the node's ends: lan0 and the metadata proxy of a network."""
    node.write("/usr/local/sbin/lab-metadata", PROXY.format(network=network, gateway=gateway, port=port), "0755")
    flows = [f"priority=20,in_port=lan0,dl_src={METADATA_MAC},actions=drop",
             f"priority=20,in_port=lan0,dl_dst={METADATA_MAC},actions=drop",
             f"priority=20,in_port=lan0,arp,arp_tpa={METADATA},actions=drop",
             "priority=0,actions=normal"]
    node.run("systemctl start openvswitch-switch && "
             f"ovs-vsctl --may-exist add-br {BRIDGE} -- --may-exist add-port {BRIDGE} lan0 -- "
             f"--may-exist add-port {BRIDGE} meta0 tag={vlan} -- set interface meta0 type=internal mac=\\\"{METADATA_MAC}\\\" && "
             f"ip link set meta0 address {METADATA_MAC} up && ip link set {BRIDGE} up && ip link set lan0 up && "
             f"ip addr replace {METADATA}/32 dev meta0 && ip route replace {subnet} dev meta0 src {METADATA} && "
             + " && ".join(f"ovs-ofctl add-flow {BRIDGE} '{flow}'" for flow in flows), timeout=300)
    node.run("pkill -F /run/lab-metadata.pid 2>/dev/null; "
             f"setsid socat TCP-LISTEN:80,bind={METADATA},fork,reuseaddr EXEC:/usr/local/sbin/lab-metadata "
             "</dev/null >/run/lab-metadata.log 2>&1 & echo $! >/run/lab-metadata.pid")


class Agent:
    """Neutron's agent of one node."""

    def __init__(self, neutron, node):
        self.neutron, self.node = neutron, node
        # The tap of each port that the switch has.
        self.taps, self.queue = {}, queue.Queue()
        self.process = None
        threading.Thread(target=self._work, daemon=True).start()

    def start(self):
        """Follows the switch's database, and reconnects after a loss of the node."""
        self.stop()
        self.process = subprocess.Popen(
            [*self.node.ssh(), "ovsdb-client --format=json monitor Open_vSwitch Interface name,external_ids"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        threading.Thread(target=self._follow, args=(self.process,), daemon=True).start()

    def stop(self):
        """Stops following it."""
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.taps = {}

    def look(self, port):
        """Neutron's port was updated."""
        if port in self.taps:
            self.queue.put(port)

    def _follow(self, process):
        for line in process.stdout:
            try:
                table = json.loads(line)
            except ValueError:
                continue
            for row in table["data"]:
                action, name, pairs = row[1], row[2], row[3]
                ids = dict(pairs[1]) if isinstance(pairs, list) and pairs[0] == "map" else {}
                port = ids.get("iface-id")
                if port is None:
                    continue
                if action == "delete":
                    self.taps.pop(port, None)
                elif action in ("initial", "insert", "new"):
                    self.taps[port] = name
                else:
                    continue
                self.queue.put(port)

    def _work(self):
        while True:
            port = self.queue.get()
            tap = self.taps.get(port)
            try:
                if tap is None:
                    self.neutron.plugged(self.node.name, port, False)
                    continue
                vlan = self.neutron.vlan(self.node.name, port)
                if vlan is not None:
                    self.node.run(f"ovs-vsctl --if-exists set port {tap} tag={vlan}")
                    self.neutron.plugged(self.node.name, port, True)
            except (Wrong, OSError) as error:
                self.neutron.log(f"agent of {self.node.name}: {port}: {error}")


def connected(node):
    """The ids of the guests' ports on the switch, and their VLANs."""
    output = node.run("ovs-vsctl --format=json --columns=name,external_ids list Interface; "
                      "ovs-vsctl --format=json --columns=name,tag list Port")
    interfaces, ports = (json.loads(line)["data"] for line in output.splitlines() if line.startswith("{"))
    tags = dict(ports)
    found = {}
    for name, pairs in interfaces:
        ident = dict(pairs[1]).get("iface-id")
        if ident:
            found[ident] = tags.get(name)
    return found
