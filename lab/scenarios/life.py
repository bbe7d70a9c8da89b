"""The life cycle of a server with a mediated device on its host: it has the device after each action."""

import time

from host import MTTY, clean
from stack import Wrong


class Life:
    """A server, and the known state of its disk."""

    def __init__(self, lab, ident):
        self.lab, self.cloud, self.ident = lab, lab.cloud, ident
        self.boots = 1

    def do(self, *command):
        """Runs a client command on the server."""
        self.cloud.run("server", *command, self.ident)

    def reaches(self, status):
        return self.cloud.status(self.ident, status)

    def has_device(self, after, image="lab", boots=None):
        """Checks that the guest rebooted from the expected disk and has its device."""
        wanted = self.boots if boots is None else boots
        log = self.cloud.guest_log(
            self.ident, lambda s: s.ready and s.disks.get("vda", (0, "", 0))[1:] == (image, wanted),
            f"it has booted from the disk {image}, boot {wanted}, {after}")
        self.lab.tick(f"{after}: the device is present, and the disk is unchanged",
                      log.count(MTTY) == 1, str(log.pci))
        held = self.cloud.devices(self.ident)
        self.lab.tick("one VGPU is allocated", list(held.values()) == [{"VGPU": 1}], str(held))
        return log

    def goes_on(self, before, after):
        """Checks that the guest keeps counting without a reboot."""
        log = self.cloud.guest_log(self.ident, lambda s: s.ticks and s.ticks[-1] > before.ticks[-1],
                               f"its guest keeps counting {after}")
        self.lab.tick(f"{after}: the guest keeps counting", log.boots == before.boots,
                      f"{log.boots} boots, not {before.boots}")


def begun(lab, name):
    """A server that has booted once."""
    life = Life(lab, lab.cloud.boot("vgpu", name)["id"])
    life.has_device("boot")
    return life


def power(life):
    """Stop and start, both reboots, pause, suspend."""
    life.do("stop")
    life.reaches("SHUTOFF")
    life.do("start")
    life.reaches("ACTIVE")
    life.boots += 1
    life.has_device("stop and start")
    for kind in ("--soft", "--hard"):
        life.do("reboot", kind)
        life.boots += 1
        life.has_device(f"reboot {kind}")
        life.reaches("ACTIVE")
    before = life.cloud.console(life.ident)
    life.do("pause")
    life.reaches("PAUSED")
    still = life.cloud.console(life.ident).ticks[-1]
    time.sleep(3)
    life.lab.tick("a paused guest does not count", life.cloud.console(life.ident).ticks[-1] == still)
    life.do("unpause")
    life.reaches("ACTIVE")
    life.goes_on(before, "unpaused")
    suspend(life, life.cloud.console(life.ident))


def suspend(life, before):
    """Suspend and resume; or a clear refusal and an unaffected server."""
    life.do("suspend")
    deadline = time.monotonic() + 120
    while True:
        server = life.cloud.server(life.ident)
        if server["status"] == "SUSPENDED" or not server["OS-EXT-STS:task_state"]:
            break
        if time.monotonic() > deadline:
            raise Wrong("the server is still suspending after 120 s")
        time.sleep(0.5)
    if server["status"] == "SUSPENDED":
        life.do("resume")
        life.reaches("ACTIVE")
        life.goes_on(before, "resumed")
        return
    events = life.cloud.run("server", "event", "list", life.ident, "-c", "Action", "-c", "Message")
    life.lab.tick("suspend is refused, and the server is ACTIVE", server["status"] == "ACTIVE",
                  server["status"] + events.out)
    life.goes_on(before, "not suspended")


def disks(life):
    """Rescue, snapshot, rebuild, shelve."""
    cloud = life.cloud
    life.do("rescue", "--image", "other")
    life.reaches("RESCUE")
    log = life.has_device("rescue", image="other", boots=1)
    life.lab.tick("its own disk is the second disk, unchanged",
                  log.disks.get("vdb", (0, "", 0))[1:] == ("lab", life.boots), str(log.disks))
    life.do("unrescue")
    life.reaches("ACTIVE")
    life.boots += 1
    life.has_device("unrescue")
    cloud.run("server", "image", "create", "--name", "kept", life.ident, "-c", "name")
    deadline = time.monotonic() + 180
    while cloud.api.expect(200, "GET", "/image/v2/images?name=kept")["images"][0]["status"] != "active":
        if time.monotonic() > deadline:
            raise Wrong("the snapshot is not active after 180 s")
        time.sleep(1)
    life.lab.tick("the snapshot is active")
    life.reaches("ACTIVE")
    copy = cloud.boot("plain", "copy", image="kept")
    log = cloud.guest_log(copy["id"])
    life.lab.tick("a server from the snapshot has the disk's content",
                  log.disks["vda"][1:] == ("lab", life.boots + 1), str(log.disks))
    cloud.delete(copy["id"])
    life.do("rebuild", "--image", "lab")
    life.boots = 1
    life.has_device("rebuild")
    life.reaches("ACTIVE")
    life.do("shelve")
    life.reaches("SHELVED_OFFLOADED")
    clean(life.lab)
    life.do("unshelve")
    life.reaches("ACTIVE")
    life.boots += 1
    life.has_device("shelve and unshelve")


def run(lab):
    """The life cycle of one server."""
    lab.heading("Every action on a server with a mediated device")
    life = begun(lab, "life")
    power(life)
    disks(life)
    lab.cloud.delete(life.ident)
    clean(lab)
    lab.cloud.doctor()
