"""Hosts that are reset, agents that are killed, and a host that goes down and returns."""

import time

import agent
from host import MTTY, attached, clean, domains, mdevs, of, other
from nodes.node import PATIENCE
from stack import Wrong


def reset(lab, ident):
    """A host reset: devices are recreated, and the guest is restarted with them."""
    node = of(lab, lab.cloud.server(ident)["OS-EXT-SRV-ATTR:host"])
    before = attached(node, ident)
    boots = lab.cloud.console(ident).disks["vda"][2]
    node.run("sync")
    node.reboot()
    lab.cloud.hosts([one.name for one in lab.nodes])
    log = lab.cloud.guest_log(ident, lambda s: s.ready and s.disks["vda"][2] > boots,
                          "its guest is up again after the reset of its host")
    lab.tick("after the reset of its host the guest runs with its device", log.count(MTTY) == 1, str(log.pci))
    lab.tick("the device has the same uuid", attached(node, ident) == before and mdevs(node) == before,
             f"{before}, then {attached(node, ident)}; on the host {mdevs(node)}")
    lab.cloud.status(ident, "ACTIVE")
    clean(lab, ident)


def killed(lab, ident):
    """The agent is killed during a boot, and the boot succeeds."""
    cloud = lab.cloud
    made = cloud.run("server", "create", "--flavor", "vgpu", "--image", "lab", "--nic", "none",
                     "--config-drive", "true", "killed", "-c", "id").table["id"]
    deadline = time.monotonic() + 60 * PATIENCE
    while not (host := cloud.server(made)["OS-EXT-SRV-ATTR:host"]):
        if time.monotonic() > deadline:
            raise Wrong("the server has no host after 60 s")
        time.sleep(0.05)
    node = of(lab, host)
    for _ in range(2):
        agent.kill(node)
        time.sleep(1.5)
    cloud.status(made, "ACTIVE")
    log = cloud.guest_log(made)
    lab.tick("the server booted with its device although the agent was killed twice", log.count(MTTY) == 1)
    clean(lab, ident, made)
    cloud.delete(made)
    clean(lab, ident)


def gone(lab, ident):
    """A host loses power: it is forced down, the server is evacuated, and the host cleans up when it returns."""
    cloud = lab.cloud
    name = cloud.server(ident)["OS-EXT-SRV-ATTR:host"]
    lost, left = of(lab, name), other(lab, name)
    lost.run("sync")
    lost.leave()
    lost.kill()
    cloud.hosts([left.name])
    lab.tick(f"{lost.name} is down")
    cloud.run("compute", "service", "list")
    cloud.run("server", "evacuate", ident, "-c", "id")
    # From microversion 2.95 on, an evacuated server stays stopped.
    server = cloud.status(ident, "SHUTOFF")
    cloud.run("server", "start", ident)
    cloud.status(ident, "ACTIVE")
    lab.tick(f"evacuated to {left.name}", server["OS-EXT-SRV-ATTR:host"] == left.name)
    log = cloud.guest_log(ident)
    lab.tick("the guest has its device there", log.count(MTTY) == 1, str(log.pci))
    lost.start()
    lost.ready()
    cloud.hosts([node.name for node in lab.nodes])
    lost.until("true", lambda _: not domains(lost) and not mdevs(lost),
               "the returning host removed what is no longer its own")
    clean(lab, ident)


def run(lab):
    """Takes one server through all of this."""
    lab.heading("Hosts that are reset and lost")
    ident = lab.cloud.boot("vgpu", "survivor")["id"]
    lab.cloud.guest_log(ident)
    reset(lab, ident)
    killed(lab, ident)
    gone(lab, ident)
    lab.cloud.delete(ident)
    clean(lab)
    lab.cloud.doctor()
