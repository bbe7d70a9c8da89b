"""The actual state of a node from its kernel and libvirt, compared with the cloud's view."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

from nodes.node import PATIENCE
from stack import Wrong

# The ids of an mtty, an NVMe function and an igb function in a guest.
MTTY, NVME, IGB = "4348:3253", "1b36:0010", "8086:10ca"


def mdevs(node):
    """The mediated devices."""
    return set(node.run("ls /sys/bus/mdev/devices").split())


def domains(node):
    """The states of libvirt's domains by uuid."""
    found = {}
    for ident in node.run("virsh -q list --all --uuid").split():
        code, state = node.attempt(f"virsh -q domstate {ident}")
        if code == 0:
            found[ident] = state
    return found


def attached(node, ident):
    """The mediated devices in a domain's definition."""
    return _mdevs(node.run(f"virsh -q dumpxml {ident}"))


def _mdevs(xml):
    devices = re.findall(r"<hostdev mode='subsystem' type='mdev'.*?</hostdev>", xml, re.S)
    return {re.search(r"<address uuid='([^']+)'", device).group(1) for device in devices}


def of(lab, name):
    """The node with this host name."""
    found = [node for node in lab.nodes if node.name == name]
    if not found:
        raise Wrong(f"no node is called {name}")
    return found[0]


def other(lab, name):
    """The node that does not have this host name."""
    return next(node for node in lab.nodes if node.name != name)


def held(node):
    """All domains with the mediated devices of their definitions; and all mediated devices."""
    # A single process, as each costs an emulated processor a quarter of a second.
    output = node.run("all=$(virsh -q list --all --uuid | sed -n 's/..*/dumpxml &;/p'); [ -z \"$all\" ] || virsh -q \"$all\" "
                    "2>/dev/null; echo devices; ls /sys/bus/mdev/devices")
    definitions, _, devices = output.rpartition("\ndevices") if "<domain" in output else ("", "", output.partition("devices")[2])
    found = re.split(r"(?m)^  <uuid>(.+)</uuid>$", definitions)
    return {ident: _mdevs(xml) for ident, xml in zip(found[1::2], found[2::2])}, set(devices.split())


def clean(lab, *idents):
    """Checks that the nodes have these servers' domains and devices, and otherwise only other lanes' servers."""
    where = {ident: lab.cloud.server(ident)["OS-EXT-SRV-ATTR:host"] for ident in idents}
    # Devices of other lanes' servers may exist before their domain is defined or after it is
    # undefined.
    patience = 120 if lab.cloud.foreign() else 30

    def settled(node):
        here = {ident for ident in idents if where[ident] == node.name}
        deadline = time.monotonic() + patience * PATIENCE
        while True:
            guests, devices = held(node)
            if set(guests) - lab.cloud.foreign() == here and devices == set().union(*guests.values()):
                return f"{node.name} has {len(here)} guest(s), their devices, and nothing else"
            # Cleaning up may take a moment longer than the API's answer.
            if time.monotonic() > deadline:
                raise Wrong(f"{node.name} should have exactly the guests {here or 'none'} and their devices; it has "
                            f"the domains {guests} and the devices {devices}")
            time.sleep(0.5)
    with ThreadPoolExecutor(len(lab.nodes)) as pool:
        for output in pool.map(settled, [node for node in lab.nodes if node.running()]):
            lab.tick(output)
