"""Volumes that reach their hosts in other ways than one iSCSI session: a root volume over two paths, a file on an NFS
export, and a namespace of NVMe over TCP, with real targets. The guest writes to all three without interruption while a
path fails and while it migrates. The hosts keep no map, session, mount or connection that no volume needs.
"""

import os
import re
import textwrap
import time

from cloud import GATEWAY
from host import MTTY, clean, other
from nodes.node import PATIENCE
from scenarios import volumes
from services.backends import FOLDER, NQN, Exports, Subsystems
from services.target import IQN
from stack import Wrong

OPTIONS = volumes.PORTS + "volume_use_multipath = true\n"
# The types of the volumes that are attached to the running guest.
TYPES = ("nfs", "nvmeof")
# The sectors of the marks: of the scenario, and of the guest. That on the root volume is beyond its file system.
FIRST_MARK, STEP_MARK, ROOT_MARK = 0, 8, 204800
# Reports each new disk with the scenario's mark, and keeps writing to all disks. A write is complete only when the target
# has it.
LOOK = """\
    #!/bin/sh
    say() {{ echo "look: $*" >/dev/console; }}
    mark() {{ dd if=/dev/$1 bs=512 skip={first} count=1 2>/dev/null | tr -d '\\000' | head -c 60; }}
    n=0
    while :; do
        n=$((n + 1))
        printf 'step %s' $n | dd of=/dev/vda bs=512 seek={root} conv=notrunc,sync,fsync 2>/dev/null
        seen="$(cd /sys/block; echo vd*)"
        for disk in $seen; do
            [ $disk = vda ] && continue
            printf 'step %s' $n | dd of=/dev/$disk bs=512 seek={step} conv=notrunc,sync,fsync 2>/dev/null
        done
        if [ "$seen" != "$last" ]; then
            last=$seen
            for disk in $seen; do
                [ $disk = vda ] || say "$disk is $(mark $disk)"
            done
            say "devices $seen"
        fi
        sleep 2
    done
    """


class Story:
    """The server with its volumes; the first is its root volume."""

    def __init__(self, lab, ident):
        self.lab, self.cloud, self.cinder, self.ident = lab, lab.cloud, lab.cloud.cinder, ident
        self.volumes = [one["volume"] for one in self.cinder.attachments.values() if one["server"] == ident]

    def host(self):
        """The node of the server."""
        name = self.cloud.server(self.ident)["OS-EXT-SRV-ATTR:host"]
        return next(node for node in self.lab.nodes if node.name == name)

    def of(self, kind):
        """The attached volumes of a type."""
        return [volume for volume in self.volumes if self.cinder.volumes[volume]["type"] == kind]

    def writes(self, when):
        """Checks that the guest's writes reach all of its volumes."""
        def marks():
            return [self.cinder.read(volume, STEP_MARK if volume != self.volumes[0] else ROOT_MARK) for volume in self.volumes]
        before, deadline = marks(), time.monotonic() + 180 * PATIENCE
        while True:
            now = marks()
            if all(one.startswith("step ") and one != old for one, old in zip(now, before)):
                break
            if time.monotonic() > deadline:
                raise Wrong(f"{when}: the guest does not write to all of its volumes: {before}, then {now}")
            time.sleep(1)
        self.lab.tick(f"{when}: the guest writes to its {len(self.volumes)} volume(s)")

    def right(self, when):
        """Checks the maps, sessions, mounts and connections of both hosts."""
        deadline = time.monotonic() + 90 * PATIENCE
        while True:
            here = self.host() if self.volumes else None
            wrong = [text for node in self.lab.nodes for text in self._wrong(node, node is here)]
            if not wrong:
                break
            if time.monotonic() > deadline:
                raise Wrong(f"{when}: " + "; ".join(wrong))
            time.sleep(1)
        self.lab.tick(f"{when}: the hosts have exactly the paths of {len(self.volumes)} volume(s)")

    def _wrong(self, node, here):
        """Descriptions of what is wrong on a host."""
        sessions = sorted(re.findall(r"iqn\.\S+", node.attempt("iscsiadm -m session")[1]))
        wanted = sorted(IQN.format(volume) for volume in self.of("iscsi") for _ in self.cinder.target.ports) if here else []
        if sessions != wanted:
            yield f"{node.name} has the sessions {sessions}, not {wanted}"
        maps = re.findall(r"^(\S+)\s*\(", node.run("dmsetup ls --target multipath"), re.M)
        if len(maps) != len(self.of("iscsi") if here else []):
            yield f"{node.name} has the maps {maps}"
        mounts = node.attempt("findmnt -rn -t nfs,nfs4 -o SOURCE")[1].split()
        if len(mounts) != (1 if here and self.of("nfs") else 0):
            yield f"{node.name} has the mounts {mounts}"
        connected = node.run("cat /sys/class/nvme/*/subsysnqn 2>/dev/null | grep lab: || true").split()
        wanted = [NQN.format(volume) for volume in self.of("nvmeof")] if here else []
        if connected != wanted:
            yield f"{node.name} has the NVMe connections {connected}, not {wanted}"
        code, xml = node.attempt(f"virsh -q dumpxml {self.ident}")
        if here and (code or set(re.findall(r"<serial>([0-9a-f-]{36})</serial>", xml)) != set(self.volumes)):
            yield f"the domain on {node.name} has other disks: {re.findall(r'<source .*', xml)}"


def prepared(lab):
    """Starts the targets on the second node, and what both need as clients."""
    last = lab.nodes[-1]
    lab.cloud.cinder.backends.update(nfs=Exports(last), nvmeof=Subsystems(last))
    port = lab.cloud.target.add_portal()
    for node in lab.nodes:
        node.run("modprobe -a dm_multipath dm_service_time dm_round_robin nvme_tcp nfs nfsv4; systemctl start multipathd && "
                 "nvme gen-hostnqn >/etc/nvme/hostnqn && cat /proc/sys/kernel/random/uuid >/etc/nvme/hostid", timeout=300)
    lab.say(f"  the target has two portals; {last.name} exports {FOLDER} by NFS and NVMe over TCP")
    return port


def created(lab):
    """A server on the first node, with a root volume over two paths and a device."""
    cloud = lab.cloud
    script = os.path.join(cloud.folder, "look.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(LOOK).format(root=ROOT_MARK, first=FIRST_MARK, step=STEP_MARK))
    image = cloud.run("image", "show", "lab", "-c", "id").table["id"]
    device = f"uuid={image},source_type=image,destination_type=volume,volume_size=1,boot_index=0,delete_on_termination=true"
    made = cloud.run("server", "create", "--flavor", "vgpu", "--block-device", device, "--nic", "none", "--config-drive", "true",
                     "--user-data", script, "--availability-zone", f"nova:{lab.nodes[0].name}", "stored", "-c", "id", "-c", "name")
    ident = made.table["id"]
    cloud.status(ident, "ACTIVE", 600)
    story = Story(lab, ident)
    log = cloud.guest_log(ident, lambda s: s.ready and "look: devices" in s.text, "it runs the script", timeout=360)
    lab.tick("the guest boots from its root volume, with its mediated device", log.count(MTTY) == 1, str(log.pci))
    source = re.search(r"<source dev='([^']+)'", lab.nodes[0].run(f"virsh -q dumpxml {ident}"))
    lab.tick("its disk is a multipath map", source and "/dm-uuid-mpath-" in source.group(1), str(source and source.group(1)))
    story.writes("create")
    story.right("create")
    return story


def attached(story):
    """Volumes of the other types are attached to the running guest."""
    cloud = story.cloud
    for kind in TYPES:
        volume = cloud.run("volume", "create", "--size", "1", "--type", kind, kind, "-c", "id", "-c", "status").table["id"]
        story.cinder.write(volume, FIRST_MARK, f"{kind} for {story.ident}")
        cloud.run("server", "add", "volume", story.ident, volume)
        cloud.guest_log(story.ident, lambda s, kind=kind: f"is {kind} for {story.ident}" in s.text, f"it reads its {kind} volume")
        story.volumes.append(volume)
        story.lab.tick(f"the guest reads its {kind} volume")
        story.writes(f"attach of {kind}")
        story.right(f"attach of {kind}")


def failed(story, port):
    """One of two paths fails and returns."""
    node = story.host()
    node.run("nft 'add table inet lab; add chain inet lab out { type filter hook output priority 0; }; "
             f"add rule inet lab out ip daddr {GATEWAY} tcp dport {port} reject with tcp reset'")
    try:
        node.until("multipathd show paths format '%d %t %T'", lambda out: "failed" in out or "faulty" in out,
                   "multipathd notices the failed path", timeout=180)
        story.writes("after a path has failed")
    finally:
        node.run("nft delete table inet lab")
    node.until("multipathd show paths format '%d %t %T'", lambda out: out.count("active ready") >= len(story.cinder.target.ports),
               "the path is back", timeout=240)
    story.lab.tick("the path returns")


def moved(story):
    """Live migration there and back, between a client of the NFS and NVMe targets and their own host."""
    for way in ("there", "back"):
        target = other(story.lab, story.host().name)
        story.cloud.run("server", "migrate", "--live-migration", "--host", target.name, story.ident)
        story.cloud.status(story.ident, "ACTIVE", 600)
        story.lab.tick(f"the server is on {target.name}", story.host() is target)
        story.writes(f"live migration {way}")
        story.right(f"live migration {way}")


def restarted(story):
    """Stop and start: all volumes are connected again."""
    story.cloud.run("server", "stop", story.ident)
    story.cloud.status(story.ident, "SHUTOFF")
    story.cloud.run("server", "start", story.ident)
    story.cloud.status(story.ident, "ACTIVE")
    story.cloud.guest_log(story.ident, lambda s: s.ready and "look: devices" in s.text, "it runs the script again", timeout=360)
    story.writes("start")
    story.right("start")


def detached(story):
    """The volumes are detached from the running guest."""
    for volume in story.volumes[:0:-1]:
        kind = story.cinder.volumes[volume]["type"]
        story.cloud.run("server", "remove", "volume", story.ident, volume)
        deadline = time.monotonic() + 120 * PATIENCE
        while story.cinder.volumes[volume]["status"] != "available":
            if time.monotonic() > deadline:
                raise Wrong(f"the detached {kind} volume is {story.cinder.volumes[volume]['status']}")
            time.sleep(1)
        story.volumes.remove(volume)
        story.lab.tick(f"the {kind} volume is available", not story.cinder.of_volume(volume))
        story.right(f"detach of {kind}")
        story.cloud.run("volume", "delete", volume)
    story.writes("detach")


def deleted(story):
    """The server is deleted with its root volume."""
    root, = story.volumes
    story.cloud.delete(story.ident)
    deadline = time.monotonic() + 90 * PATIENCE
    while root in story.cinder.volumes or story.cinder.attachments:
        if time.monotonic() > deadline:
            raise Wrong(f"the volumes are {story.cinder.volumes}, the attachments {story.cinder.attachments}")
        time.sleep(1)
    story.volumes.clear()
    clean(story.lab)
    story.right("delete")


def run(lab):
    """The scenario."""
    lab.heading("Multipath, NFS and NVMe over TCP")

    def tell(lab):
        found = {}
        volumes.begun(lab, OPTIONS, lambda: found.update(port=prepared(lab)))
        story = created(lab)
        attached(story)
        failed(story, found["port"])
        moved(story)
        restarted(story)
        detached(story)
        deleted(story)
        lab.cloud.doctor()
    volumes.beside(lab, tell)
