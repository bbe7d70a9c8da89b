"""Kilonova in Nova's place beside a Keystone, a Cinder and a Neutron: a server with a root volume over iSCSI, a
mediated device and a port of Open vSwitch goes through every operation. After each, the guest has its data, its device
and its metadata, the hosts have exactly its disks, sessions and taps, and its attachments and bindings are as upstream
leaves them.
"""

import copy
import os
import re
import textwrap
import time

import agent
from beside import Beside
from cloud import GATEWAY
from host import MTTY, attached, clean, of, other
from nodes.node import PATIENCE
from scenarios import hosts
from services import switch
from services.target import IQN
from stack import Gone, Wrong

NET, RANGE, VLAN = "blue", "10.88.0.0/24", 101
# Free ports for a second volume and a second card. libvirt leaves one.
PORTS = "[libvirt]\nnum_pcie_ports = 10\n"
# The sectors of the marks: on the root volume, beyond its file system, and on the other volume.
ROOT_MARK, FIRST_MARK, SECOND_MARK = 204800, 0, 8
# Reports the disks, cards and metadata of a guest, and keeps writing to its root volume.
LOOK = """\
    #!/bin/sh
    say() {{ echo "look: $*" >/dev/console; }}
    sector() {{ dd if=/dev/$1 bs=512 skip=$2 count=1 2>/dev/null | tr -d '\\000' | head -c 60; }}
    say "the root volume holds $(sector vda {root})"
    card=$(ip -4 -o addr show | awk '$4 ~ /^10[.]88/ {{print $2; exit}}')
    ip route add 169.254.169.254/32 dev $card
    boot=$(head -c 8 /proc/sys/kernel/random/boot_id)
    n=0
    while :; do
        n=$((n + 1))
        printf 'boot %s step %s' $boot $n | dd of=/dev/vda bs=512 seek={root} conv=notrunc,sync,fsync 2>/dev/null
        seen="$(cd /sys/block; echo [vs]d*) $(cat /sys/class/net/e*/address | sort | tr '\\n' ' ')"
        if [ "$seen" != "$last" ]; then
            last=$seen
            if [ -b /dev/vdb ] && sector vdb {first} | grep -q '^for '; then
                say "the second volume is $(sector vdb {first})"
                printf 'read by boot %s' $boot | dd of=/dev/vdb bs=512 seek={second} conv=notrunc,sync,fsync 2>/dev/null
            fi
            say "devices $seen"
        fi
        if [ $((n % 5)) = 1 ]; then
            uuid=$(timeout 10 wget -q -O - http://169.254.169.254/openstack/latest/meta_data.json | grep -o '"uuid": *"[^"]*"')
            say "step $n metadata $uuid"
        fi
        sleep 2
    done
    """


class Story:
    """The server, and its expected state."""

    def __init__(self, lab, ident, root, port):
        self.lab, self.cloud, self.ident = lab, lab.cloud, ident
        self.cinder, self.neutron = lab.cloud.cinder, lab.cloud.neutron
        self.root, self.volumes, self.ports = root, [root], [port]
        self.boots, self.image = 1, "lab"

    def do(self, *command, version=None):
        """Runs a client command on the server."""
        words = ["--os-compute-api-version", version] if version else []
        self.cloud.run(*words, "server", *command, self.ident)

    def reaches(self, status):
        return self.cloud.status(self.ident, status)

    def host(self):
        """The node of the server, or None."""
        name = self.cloud.server(self.ident)["OS-EXT-SRV-ATTR:host"]
        return of(self.lab, name) if name else None

    def up(self, after, disks=None):
        """Checks that the guest has booted from its root volume, with its device and its metadata."""
        log = self.cloud.guest_log(
            # The log ends with the previous boot until the guest begins the next one.
            self.ident, lambda s: s.ready and s.disks.get("vda", (0, "", 0))[1:] == (self.image, self.boots)
            and "look: devices" in s.text and 'metadata "uuid' in s.text,
            f"it has booted from the image {self.image}, boot {self.boots}, and has its metadata {after}", timeout=360)
        found = log.disks.get("vda", (0, "", 0))
        self.lab.tick(f"{after}: boot {self.boots} of the image {self.image} from the root volume of 1 GiB",
                      found == ((1 << 30) // 512, self.image, self.boots), str(log.disks))
        self.lab.tick("with its mediated device", log.count(MTTY) == 1, str(log.pci))
        said = re.findall(r'^look: step (\d+) metadata "uuid": *"([^"]*)"', log.text, re.M)
        self.lab.tick("and the metadata service returns its uuid", said and said[-1][1] == self.ident, str(said))
        if disks:
            self.lab.tick(f"its disks are {disks}", set(disks.split()) <= set(log.disks), str(log.disks))
        return log

    def data(self, before, after):
        """Checks that the guest found on its root volume what its last boot wrote there."""
        log = self.cloud.console(self.ident)
        held = re.findall(r"^look: the root volume holds (.*?)\s*$", log.text, re.M)
        self.lab.tick(f"{after}: the volume has what the guest wrote before", held and held[-1].startswith(before),
                      f"{held}, not {before}")

    def mark(self):
        """The boot of the guest's last mark on its root volume."""
        return " ".join(self.cinder.read(self.root, ROOT_MARK).split()[:2])

    def writes(self, after):
        """Checks that the guest's writes reach its root volume."""
        before, deadline = self.cinder.read(self.root, ROOT_MARK), time.monotonic() + 120 * PATIENCE
        while self.cinder.read(self.root, ROOT_MARK) == before:
            if time.monotonic() > deadline:
                raise Wrong(f"{after}: the guest no longer writes to its root volume; its last mark is {before}")
            time.sleep(1)
        self.lab.tick(f"{after}: the guest writes to its root volume")

    def right(self, after, running=True):
        """Checks the volumes in Cinder, the ports in Neutron, and both hosts."""
        deadline, seen = time.monotonic() + 90 * PATIENCE, None
        while True:
            host = self.host()
            seen = [*self._cinder(host), *self._neutron(host, running), *self._hosts(host, running)]
            if not seen:
                break
            if time.monotonic() > deadline:
                raise Wrong(f"after {after}: " + "; ".join(seen))
            time.sleep(1)
        self.lab.tick(f"after {after}: {len(self.volumes)} volume(s), {len(self.ports)} port(s): attachments, bindings, disks, "
                      "sessions and taps are right")

    def _cinder(self, host):
        """Descriptions of wrong attachments."""
        freed = [volume for volume in self.cinder.freed if volume in self.volumes]
        if freed:
            yield f"the volumes {freed} were available for a moment"
        with self.cinder.lock:
            every = [one for one in self.cinder.attachments.values() if one["server"] == self.ident]
            if sorted(one["volume"] for one in every) != sorted(self.volumes):
                yield f"the attached volumes are {[one['volume'] for one in every]}, not {self.volumes}"
            for one in every:
                found = (self.cinder.volumes[one["volume"]]["status"], one["status"], (one["connector"] or {}).get("host"))
                wanted = ("in-use", "attached", host.name) if host else ("reserved", "reserved", None)
                if found != wanted:
                    yield f"the volume {one['volume']} is {found}, not {wanted}"
                if host and not one["connector"].get("mountpoint"):
                    yield f"the volume {one['volume']} has no device name"
                sessions = self.cinder.target.sessions(one["volume"])
                if host and sessions and sessions != [one["connector"]["initiator"]]:
                    yield f"the target of the volume {one['volume']} has the sessions {sessions}"
                if not host and sessions:
                    yield f"the target of the volume {one['volume']} still has the sessions {sessions}"

    def _neutron(self, host, running):
        """Descriptions of wrong ports."""
        with self.neutron.lock:
            for ident in self.ports:
                port = self.neutron.ports.get(ident)
                if not port:
                    yield f"the port {ident} is gone"
                    continue
                found = [(one["host"], one["status"], one["vif_type"]) for one in port["bindings"] if one["host"]]
                wanted = [(host.name, "ACTIVE", "ovs")] if host else []
                if found != wanted:
                    yield f"the bindings of the port {ident} are {found}, not {wanted}"
                if port["device_id"] != self.ident or not port["device_owner"].startswith("compute:"):
                    yield f"the port {ident} belongs to {port['device_owner']} {port['device_id']}"
                if port["status"] != ("ACTIVE" if running else "DOWN"):
                    yield f"the port {ident} is {port['status']}"

    def _hosts(self, host, running):
        """Descriptions of what is wrong on the hosts."""
        for node in (one for one in self.lab.nodes if one.running()):
            here = node is host
            taps = switch.connected(node)
            wanted = {port: VLAN for port in self.ports} if here and running else {}
            if taps != wanted:
                yield f"{node.name} has the taps {taps}, not {wanted}"
            sessions = set(re.findall(r"iqn\.\S+", node.attempt("iscsiadm -m session")[1]))
            needed = {IQN.format(volume) for volume in self.volumes} if here else set()
            if sessions - needed or running and sessions != needed:
                yield f"{node.name} has the sessions {sessions}, not {needed}"
            code, xml = node.attempt(f"virsh -q dumpxml {self.ident}")
            if (code == 0) != here:
                yield f"{node.name} {'has a' if code == 0 else 'has no'} domain of the server"
            if here and code == 0:
                disks = set(re.findall(r"<serial>([0-9a-f-]{36})</serial>", xml))
                if disks != set(self.volumes):
                    yield f"its domain has the disks {disks}"
                cards = set(re.findall(r"<parameters interfaceid='([^']+)'", xml))
                if cards != set(self.ports):
                    yield f"its domain has the ports {cards}"
                if len(attached(node, self.ident)) != 1:
                    yield "its domain has no mediated device"


def shows(log, device):
    """True if the guest's last report has a disk or a card; None before its first report. After a live migration the
    log may begin later than the guest."""
    said = re.findall(r"^look: devices (.*?)\s*$", log.whole, re.M)
    return device in said[-1] if said else None


def begun(lab, more=PORTS, prepare=None):
    """The services, the hosts with additional configuration lines, and the network; returns the network's id."""
    cloud = lab.cloud
    lab.say(cloud.start())
    if prepare:
        prepare()
    network = cloud.neutron.add_network(cloud.project(), NET, VLAN, RANGE)
    for node in lab.nodes:
        ready(lab, node, network)
    agent.offer(lab.options, cloud.run_folder)
    hosts.joined(lab, more)
    cloud.images()
    made = cloud.run("image", "list", "-c", "ID", "-c", "Name").table
    parts = {name: made.one(Name=name)["ID"] for name in ("lab-kernel", "lab-ramdisk")}
    cloud.run("image", "create", "rescue", "--disk-format", "raw", "--container-format", "bare",
              "--file", os.path.join(cloud.guest, "other.raw"), "--property", f"kernel_id={parts['lab-kernel']}",
              "--property", f"ramdisk_id={parts['lab-ramdisk']}", "--property", "hw_machine_type=q35",
              "--property", "hw_rescue_bus=virtio", "--property", "hw_rescue_device=disk", "-c", "id", "-c", "status")
    cloud.flavor("vgpu", "resources:VGPU=1")
    cloud.flavor("vgpu-more", "resources:VGPU=1", "lab:more=yes")
    return network


def ready(lab, node, network):
    """Starts what a node needs: the iSCSI initiator under its own name, the switch, and Neutron's agent."""
    node.run(f"echo InitiatorName=iqn.2004-10.com.example:{node.name} >/etc/iscsi/initiatorname.iscsi; "
             "modprobe -a iscsi_tcp sd_mod openvswitch; systemctl start iscsid", timeout=300)
    switch.prepare(node, VLAN, RANGE, network, GATEWAY, lab.cloud.metadata.port)
    lab.cloud.agents([node])


def ports(lab, *names):
    """New ports of the network; returns their ids."""
    return [lab.cloud.run("port", "create", "--network", NET, name, "-c", "id", "-c", "fixed_ips").table["id"] for name in names]


def created(lab):
    """A server with a root volume of the image, its device and a port."""
    cloud = lab.cloud
    script = os.path.join(cloud.folder, "look.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(LOOK).format(root=ROOT_MARK, first=FIRST_MARK, second=SECOND_MARK))
    port, = ports(lab, "first")
    image = cloud.run("image", "show", "lab", "-c", "id").table["id"]
    device = f"uuid={image},source_type=image,destination_type=volume,volume_size=1,boot_index=0,delete_on_termination=true"
    made = cloud.run("server", "create", "--flavor", "vgpu", "--block-device", device, "--nic", f"port-id={port}",
                     "--config-drive", "true", "--user-data", script, "citizen", "-c", "id", "-c", "name")
    ident = made.table["id"]
    cloud.status(ident, "ACTIVE", 600)
    root, = [one["volume"] for one in cloud.cinder.attachments.values() if one["server"] == ident]
    story = Story(lab, ident, root, port)
    story.up("create")
    story.right("create")
    answers(story, "create")
    return story


def answers(story, after):
    """Checks that the guest answers its host."""
    node = story.host()
    for port in story.ports[:1]:
        address = story.neutron.ports[port]["fixed_ips"][0]["ip_address"]
        node.until(f"ping -c 1 -W 3 -I meta0 {address} >/dev/null && echo yes", lambda out: out == "yes",
                   f"{address} answers its host after {after}", timeout=60)
    story.lab.tick(f"after {after}: the guest answers a ping from {node.name}")


def power(story):
    """Stop and start, both reboots."""
    before = story.mark()
    story.do("stop")
    story.reaches("SHUTOFF")
    story.right("stop", running=False)
    story.do("start")
    story.reaches("ACTIVE")
    story.boots += 1
    story.up("start")
    story.data(before, "start")
    story.right("start")
    for kind in ("--soft", "--hard"):
        story.do("reboot", kind)
        story.boots += 1
        story.up(f"reboot {kind}")
        story.reaches("ACTIVE")
        story.right(f"reboot {kind}")


def plugged(story):
    """A second volume and a second port of the running guest: attached, used, and detached."""
    cloud, cinder = story.cloud, story.cinder
    volume = cloud.run("volume", "create", "--size", "1", "second", "-c", "id", "-c", "status").table["id"]
    cinder.write(volume, FIRST_MARK, f"for {story.ident}")
    cloud.run("server", "add", "volume", story.ident, volume)
    story.volumes.append(volume)
    cloud.guest_log(story.ident, lambda s: f"look: the second volume is for {story.ident}" in s.text,
                    "it reads its second volume")
    story.lab.tick("the guest reads its second volume")
    deadline = time.monotonic() + 60 * PATIENCE
    while not cinder.read(volume, SECOND_MARK).startswith("read by boot "):
        if time.monotonic() > deadline:
            raise Wrong("the guest's mark is not on its second volume")
        time.sleep(1)
    story.lab.tick("and writes to it")
    story.right("attach of a volume")
    port, = ports(story.lab, "second")
    cloud.run("server", "add", "port", story.ident, port)
    story.ports.append(port)
    mac = story.neutron.ports[port]["mac_address"]
    cloud.guest_log(story.ident, lambda s: shows(s, mac), "it has its second card")
    story.lab.tick("the guest has its second card")
    story.right("attach of a port")


def unplugged(story):
    """The second volume and the second port are detached."""
    volume, port, cloud = story.volumes.pop(), story.ports.pop(), story.cloud
    cloud.run("server", "remove", "volume", story.ident, volume)
    cloud.guest_log(story.ident, lambda s: shows(s, "vdb") is False, "its second disk is gone")
    deadline = time.monotonic() + 90 * PATIENCE
    while story.cinder.volumes[volume]["status"] != "available":
        if time.monotonic() > deadline:
            raise Wrong(f"the detached volume is {story.cinder.volumes[volume]['status']}")
        time.sleep(1)
    story.lab.tick("the detached volume is available", not story.cinder.of_volume(volume))
    cloud.run("server", "remove", "port", story.ident, port)
    mac = story.neutron.ports[port]["mac_address"]
    cloud.guest_log(story.ident, lambda s: shows(s, mac) is False, "its second card is gone")
    deadline = time.monotonic() + 60 * PATIENCE
    while story.neutron.ports[port]["device_id"] or any(one["host"] for one in story.neutron.ports[port]["bindings"]):
        if time.monotonic() > deadline:
            raise Wrong(f"the detached port is not free: {story.neutron.ports[port]}")
        time.sleep(1)
    story.lab.tick("the detached port is free")
    story.right("detach of both")
    story.cinder.freed.clear()


def moved(story):
    """Resizes, reverted and confirmed, and cold migration."""
    for verb in ("revert", "confirm"):
        before, source = story.mark(), story.host()
        story.do("resize", "--flavor", "vgpu-more")
        story.reaches("VERIFY_RESIZE")
        story.boots += 1
        story.up("resize")
        story.data(before, "resize")
        story.lab.tick("it is on the other host", story.host() is not source)
        story.do("resize", verb)
        story.reaches("ACTIVE")
        if verb == "revert":
            story.boots += 1
            story.up("revert of the resize")
            story.lab.tick("it is on its first host", story.host() is source)
        story.right(f"{verb} of the resize")
    before, source = story.mark(), story.host()
    story.do("migrate")
    story.reaches("VERIFY_RESIZE")
    story.boots += 1
    story.up("cold migration")
    story.data(before, "cold migration")
    story.do("migrate", "confirm")
    story.reaches("ACTIVE")
    story.lab.tick("it is on the other host", story.host() is not source)
    story.right("cold migration")
    answers(story, "cold migration")


def live(story):
    """Migrates to the other host and back while the guest keeps counting and writing."""
    for way in ("there", "back"):
        source = story.host()
        target = other(story.lab, source.name)
        log = story.cloud.console(story.ident)
        story.cloud.run("server", "migrate", "--live-migration", "--host", target.name, story.ident)
        story.reaches("ACTIVE")
        story.lab.tick(f"the server is on {target.name}", story.host() is target)
        story.right(f"live migration {way}")
        story.writes(f"live migration {way}")
        steps = [0, *(int(step) for step in re.findall(r'^look: step (\d+) ', log.whole, re.M))]
        after = story.cloud.guest_log(
            story.ident, lambda s, steps=steps: any(int(step) > steps[-1] + 5 for step in re.findall(
                rf'^look: step (\d+) metadata "uuid": *"{story.ident}"', s.whole, re.M)),
            f"it has its metadata from {target.name}")
        story.lab.tick(f"live migration {way}: it keeps counting, and has its metadata from {target.name}",
                       after.ticks[-1] > log.ticks[-1] and after.whole.count("guest: boot ") <= log.boots)
        answers(story, f"live migration {way}")


def evacuated(story, network):
    """The server's host loses power, and the server is rebuilt on the other host from its volumes."""
    lab, cloud, before, lost = story.lab, story.cloud, story.mark(), story.host()
    left = other(lab, lost.name)
    lost.run("sync")
    lost.leave()
    lost.kill()
    cloud.hosts([left.name])
    lab.tick(f"{lost.name} is down")
    cloud.run("server", "evacuate", story.ident, "-c", "id")
    # From microversion 2.95 on, an evacuated server stays stopped.
    story.reaches("SHUTOFF")
    story.right("evacuation", running=False)
    story.do("start")
    story.reaches("ACTIVE")
    story.boots += 1
    story.up("evacuation")
    story.data(before, "evacuation")
    lost.start()
    lost.ready(600)
    ready(lab, lost, network)
    cloud.hosts([node.name for node in lab.nodes])
    lost.until("virsh -q list --all --uuid; ls /sys/bus/mdev/devices; iscsiadm -m session 2>/dev/null", lambda out: not out,
               "the returning host removed what is no longer its own", timeout=180)
    story.right("evacuation")


def shelved(story):
    """Shelves the server, which keeps its volumes reserved, and unshelves it."""
    before = story.mark()
    story.do("shelve")
    story.reaches("SHELVED_OFFLOADED")
    story.right("shelve", running=False)
    clean(story.lab)
    story.do("unshelve")
    story.reaches("ACTIVE")
    story.boots += 1
    story.up("unshelve")
    story.data(before, "unshelve")
    story.right("unshelve")


def pictured(story):
    """Creates an image of the server's volumes, and a server from it."""
    cloud, cinder = story.cloud, story.cinder
    cloud.run("server", "image", "create", "--name", "kept", story.ident, "-c", "name")
    deadline = time.monotonic() + 120 * PATIENCE
    while len(cinder.snapshots) != len(story.volumes) or cloud.api.expect(
            200, "GET", "/image/v2/images?name=kept")["images"][0]["status"] != "active":
        if time.monotonic() > deadline:
            raise Wrong(f"there is no image of the volumes: {cinder.snapshots}")
        time.sleep(1)
    story.reaches("ACTIVE")
    story.right("image of the volumes")
    cloud.run("flavor", "create", "small", "--vcpus", "1", "--ram", "192", "--disk", "0", "-c", "id")
    second = cloud.boot("small", "copy", image="kept", timeout=600)["id"]
    log = cloud.guest_log(second, timeout=360)
    story.lab.tick("a server from the image has the content of the root volume",
                   log.disks["vda"][1:] == (story.image, story.boots + 1), str(log.disks))
    made = [one["volume"] for one in cinder.attachments.values() if one["server"] == second]
    cloud.delete(second)
    deadline = time.monotonic() + 60 * PATIENCE
    while set(made) & set(cinder.volumes):
        if time.monotonic() > deadline:
            raise Wrong(f"the volumes of the deleted server are left: {made}")
        time.sleep(1)
    for snapshot in list(cinder.snapshots):
        cloud.run("volume", "snapshot", "delete", snapshot)
    story.lab.tick("its volume is deleted with it, and so is the snapshot", len(made) == 1 and not cinder.snapshots,
                   f"{made} {cinder.snapshots}")
    cloud.run("image", "delete", "kept")


def rescued(story):
    """Rescues the server with its volumes attached, and unrescues it."""
    story.do("rescue", "--image", "rescue", version="2.87")
    story.reaches("RESCUE")
    log = story.cloud.guest_log(story.ident, lambda s: s.ready and any(
        disk[1] == "other" for disk in s.disks.values()), "it is up with the rescue disk", timeout=360)
    story.boots = log.disks["vda"][2] if log.disks.get("vda", (0, "", 0))[1] == story.image else story.boots
    story.lab.tick("a rescued guest has its volume and its device", log.count(MTTY) == 1 and any(
        disk[1] == story.image for disk in log.disks.values()), f"{log.disks} {log.pci}")
    story.right("rescue")
    story.do("unrescue")
    story.reaches("ACTIVE")
    story.boots += 1
    story.up("unrescue")
    story.right("unrescue")


def rebuilt(story):
    """Rebuilds the server: Cinder replaces the data of the root volume by another image's."""
    story.do("rebuild", "--image", "other", "--reimage-boot-volume", version="2.93")
    story.reaches("ACTIVE")
    story.boots, story.image = 1, "other"
    story.up("rebuild")
    story.right("rebuild")
    answers(story, "rebuild")


def deleted(story):
    """Deletes the server with its root volume; its port stays."""
    cloud, cinder = story.cloud, story.cinder
    cloud.delete(story.ident)
    deadline = time.monotonic() + 90 * PATIENCE
    while story.root in cinder.volumes or cinder.attachments:
        if time.monotonic() > deadline:
            raise Wrong(f"the volumes are {cinder.volumes}, the attachments {cinder.attachments}")
        time.sleep(1)
    story.lab.tick("the root volume is deleted with its server, and no attachment is left")
    port = story.neutron.ports[story.ports[0]]
    story.lab.tick("its port is free", not port["device_id"] and not any(one["host"] for one in port["bindings"]), str(port))
    clean(story.lab)
    for node in story.lab.nodes:
        node.until("iscsiadm -m session 2>/dev/null", lambda out: not out, f"{node.name} has no session")
        story.lab.tick(f"{node.name} has no tap and no session", not switch.connected(node))


def all_verbs(lab, network):
    """Takes one server through everything."""
    story = created(lab)
    power(story)
    plugged(story)
    live(story)
    unplugged(story)
    moved(story)
    evacuated(story, network)
    shelved(story)
    pictured(story)
    rescued(story)
    rebuilt(story)
    deleted(story)
    for volume in list(lab.cloud.cinder.volumes):
        lab.cloud.run("volume", "delete", volume)
    lab.cloud.doctor()


def fresh(lab):
    """Returns both hosts to their state before they joined, without NUMA cells."""
    for node in lab.nodes:
        agent.forget(node)
        if node.cells:
            node.shut()
            node.cells = False
            node.start()
            node.ready(600)


def run(lab):
    """The scenario."""
    lab.heading("Beside a Keystone, a Cinder and a Neutron")
    beside(lab, lambda lab: all_verbs(lab, begun(lab)))


def beside(lab, tell):
    """Stops the usual controller; another one takes over the hosts, for a story."""
    usual = lab.cloud
    usual.clean()
    fresh(lab)
    usual.stop()
    lab = copy.copy(lab)
    lab.cloud = Beside(lab, hosts.ALIAS)
    try:
        tell(lab)
    finally:
        for node in lab.nodes:
            try:
                agent.stop(node)
            except (Wrong, Gone, OSError) as error:
                lab.say(f"  {error}")
        usual.clients.checks += lab.cloud.clients.checks
        usual.clients.commands += lab.cloud.clients.commands
        lab.cloud.stop()
