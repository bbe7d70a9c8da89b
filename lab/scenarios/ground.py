"""Checks the lab without Kilonova: virsh, a guest with an mdev, its migration.

If this fails, the fault lies in the lab (kernel, QEMU, libvirt, the machine), not in the product.
"""

import re
import textwrap
import uuid

from guest import COMMAND_LINE

NAME = "ground"
TYPES = "/sys/class/mdev_bus/mtty/mdev_supported_types"


def domain(mdev):
    """A domain with one mediated device and its own files in /var/tmp."""
    return textwrap.dedent(f"""\
        <domain type='kvm'><name>{NAME}</name><memory unit='MiB'>192</memory><vcpu>1</vcpu>
        <os><type arch='x86_64' machine='q35'>hvm</type><kernel>/var/tmp/vmlinux</kernel>
        <initrd>/var/tmp/initrd.gz</initrd><cmdline>{COMMAND_LINE}</cmdline></os>
        <features><acpi/></features><cpu mode='host-passthrough'/>
        <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
        <serial type='file'><source path='/var/tmp/{NAME}.log' append='on'/></serial>
        <hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci'>
        <source><address uuid='{mdev}'/></source></hostdev>
        <memballoon model='none'/></devices></domain>
        """)


def ticks(node):
    """The counter's values in the guest's console log on a node."""
    code, output = node.attempt(f"cat /var/tmp/{NAME}.log")
    return [] if code else [int(n) for n in re.findall(r"^tick (\d+)", output, re.M)]


def run(lab):
    """A guest with an mdev is created, migrated to the other node under load, and destroyed."""
    lab.heading("The base: virsh alone")
    first, second = lab.nodes
    mdev = str(uuid.uuid4())
    for node in lab.nodes:
        node.run("cp -n /srv/host/guest/vmlinux /srv/host/guest/initrd.gz /var/tmp/")
        node.run(f"rm -f /var/tmp/{NAME}.log; echo {mdev} >{TYPES}/mtty-1/create")
    try:
        first.write(f"/var/tmp/{NAME}.xml", domain(mdev))
        first.run(f"virsh -q create /var/tmp/{NAME}.xml", timeout=300)
        output = first.until(f"cat /var/tmp/{NAME}.log", lambda text: "\ntick 3" in text,
                           "the guest counts", timeout=300)
        lab.tick("the guest sees the mediated device", "4348:3253" in output, output)
        lab.tick("its domain has type kvm",
                 "type='kvm'" in first.run(f"virsh dumpxml {NAME} | head -n 1"))
        before = ticks(first)[-1]
        first.run(f"virsh -q migrate --live --p2p {NAME} qemu+tcp://node2/system", timeout=300)
        job = second.run(f"virsh domjobinfo {NAME} --completed")
        second.until(f"tail -n 1 /var/tmp/{NAME}.log", lambda text: text.startswith("tick"),
                     "the guest counts on the other node")
        after = ticks(second)
        lab.tick(f"its counter continued from {before} with {after[0]}",
                 before <= after[0] < before + 500, str(after[:3]))
        for line in job.splitlines():
            if "Time elapsed" in line or "downtime" in line.lower():
                lab.say("  → migration, " + " ".join(line.split()))
        lab.tick("the domain is gone from the first node",
                 NAME not in first.run("virsh list --all --name"))
    finally:
        for node in lab.nodes:
            node.attempt(f"virsh -q destroy {NAME}; echo 1 >/sys/bus/mdev/devices/{mdev}/remove; "
                         f"rm -f /var/tmp/{NAME}.*")
    for node in lab.nodes:
        lab.tick(f"{node.name} has no mediated devices",
                 not node.run("ls /sys/bus/mdev/devices"))
