"""Builds the nodes' disk and initial RAM disk from the root file system, the kernel's modules and files/.

One image serves both nodes; each runs on an overlay of its own (nodes/machine.py).
"""

import os
import shutil
import tempfile

from build import guest
from build.cache import run, text
from build.debian import HERE, lines

# Sparse: unused space takes no disk space on the machine.
SIZE_GIB = 8
# Files that are copied from files/ into the image, with their modes.
INSIDE = {
    "lab-node": ("usr/sbin/lab-node", 0o755),
    "lab-ready": ("usr/sbin/lab-ready", 0o755),
    "lab-node.service": ("etc/systemd/system/lab-node.service", 0o644),
    "lab-ready.service": ("etc/systemd/system/lab-ready.service", 0o644),
    "libvirtd.conf": ("etc/libvirt/libvirtd.conf.lab", 0o644),
    "qemu.conf": ("etc/libvirt/qemu.conf", 0o644),
}
# Files with this content.
SETTINGS = {
    "etc/hosts": "127.0.0.1 localhost\n10.98.0.1 node1\n10.98.0.2 node2\n",
    "etc/hostname": "node\n",
    # The kernel's command line sets it on each boot; without an id here systemd would treat each boot as the first.
    "etc/machine-id": "6b696c6f000040008000000000000000\n",
    "etc/default/ssh": 'SSHD_OPTS="-o UsePAM=no -o UseDNS=no -o StrictModes=no"\n',
    "etc/systemd/journald.conf": "[Journal]\nStorage=persistent\nSystemMaxUse=32M\n",
}
# Units that start with the node: those that Debian leaves to the operator, and the lab's own.
ENABLED = {"sysinit.target": ["lab-node.service"], "multi-user.target": ["lab-ready.service"],
           "sockets.target": ["libvirtd-tcp.socket"]}
# Units that Debian's packages enable and that only one scenario needs; it starts them.
ON_DEMAND = {"openvswitch-switch.service", "ovsdb-server.service", "ovs-vswitchd.service", "ovs-record-hostname.service",
             "iscsid.service", "iscsid.socket", "open-iscsi.service", "iscsi.service",
             "multipathd.service", "multipathd.socket", "multipathd-queueing.service", "multipath-tools.service",
             "nfs-server.service", "nfs-kernel-server.service", "nfs-client.target", "nfs-blkmap.service", "rpcbind.service",
             "rpcbind.socket", "rpc-statd.service", "rpc-statd-notify.service", "nvmefc-boot-connections.service",
             "nvmf-autoconnect.service", "nfs-common.service", "run-rpc_pipefs.mount", "proc-fs-nfsd.mount"}


def units(tree):
    """Enables the units that start with a node."""
    folder = os.path.join(tree, "etc/systemd/system")
    for unit in lines("masked"):
        os.symlink("/dev/null", os.path.join(folder, unit))
    os.symlink("/usr/lib/systemd/system/multi-user.target", os.path.join(folder, "default.target"))
    for place, _, names in os.walk(folder):
        for name in ON_DEMAND.intersection(names) if place.endswith((".wants", ".requires")) else ():
            os.remove(os.path.join(place, name))
    for target, names in ENABLED.items():
        wants = os.path.join(folder, f"{target}.wants")
        os.makedirs(wants, exist_ok=True)
        for name in names:
            own = os.path.join("/etc/systemd/system", name)
            there = own if os.path.exists(tree + own) else f"/usr/lib/systemd/system/{name}"
            os.symlink(there, os.path.join(wants, name))


def parts(root, kernel):
    """The inputs that decide whether the image is rebuilt."""
    contents = [text(os.path.join(HERE, "files", name)) for name in [*INSIDE, "node-early"]]
    return [root, kernel, SIZE_GIB, INSIDE, SETTINGS, ENABLED, sorted(ON_DEMAND), lines("masked"), text(guest.BUSYBOX), *contents]


def make(root, kernel):
    """Returns the function that fills a directory: `node.ext4` and `initrd.gz`."""
    def fill(folder):
        with tempfile.TemporaryDirectory(dir=folder) as work:
            tree = os.path.join(work, "root")
            run("cp", "-a", os.path.join(root, "root"), tree)
            run("cp", "-a", os.path.join(kernel, "modules/usr/lib/modules"),
                os.path.join(tree, "usr/lib/"))
            for name, (place, mode) in INSIDE.items():
                target = os.path.join(tree, place)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copy(os.path.join(HERE, "files", name), target)
                os.chmod(target, mode)
            for place, content in SETTINGS.items():
                with open(os.path.join(tree, place), "w", encoding="utf-8") as file:
                    file.write(content)
            units(tree)
            image = os.path.join(folder, "node.ext4")
            with open(image, "wb") as file:
                file.truncate(SIZE_GIB << 30)
            run("mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1", "-d", tree, image)
            early = os.path.join(work, "early")
            for place in ("bin", "dev", "proc", "sys", "root"):
                os.makedirs(os.path.join(early, place))
            shutil.copy(guest.BUSYBOX, os.path.join(early, "bin/busybox"))
            run("cp", "-a", os.path.join(kernel, "early"), os.path.join(early, "modules"))
            shutil.copy(os.path.join(HERE, "files", "node-early"), os.path.join(early, "init"))
            os.chmod(os.path.join(early, "init"), 0o755)
            guest.archive(early, os.path.join(folder, "initrd.gz"))
    return fill
