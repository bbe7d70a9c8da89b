"""What a node really holds, as its kernel and libvirt say: compared with what the cloud believes."""

import re

from stack import Wrong

# What a guest sees of an mtty, of an NVMe function and of an igb one.
MTTY, NVME, IGB = "4348:3253", "1b36:0010", "8086:10ca"


def mdevs(node):
    """The mediated devices."""
    return set(node.run("ls /sys/bus/mdev/devices").split())


def domains(node):
    """libvirt's domains, by uuid: their state."""
    found = {}
    for ident in node.run("virsh -q list --all --uuid").split():
        code, state = node.attempt(f"virsh -q domstate {ident}")
        if code == 0:
            found[ident] = state
    return found


def attached(node, ident):
    """The mediated devices in a domain's definition."""
    said = node.run(f"virsh -q dumpxml {ident}")
    devices = re.findall(r"<hostdev mode='subsystem' type='mdev'.*?</hostdev>", said, re.S)
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


def clean(lab, *idents):
    """Checks that the nodes hold these servers' domains and devices, and nothing else."""
    where = {ident: lab.cloud.server(ident)["OS-EXT-SRV-ATTR:host"] for ident in idents}
    for node in lab.nodes:
        if not node.running():
            continue
        here = {ident for ident, host in where.items() if host == node.name}

        def holds(_, node=node, here=here):
            return set(domains(node)) == here and mdevs(node) == {
                mdev for ident in here for mdev in attached(node, ident)}
        # What is being put away may take a moment longer than the answer to the user.
        node.until("true", holds, f"{node.name} holds its {len(here)} guest(s) and their devices alone; it has "
                   f"domains {domains(node)} and devices {mdevs(node)}", timeout=30)
        lab.tick(f"{node.name} holds {len(here)} guest(s), their devices, and nothing else")
