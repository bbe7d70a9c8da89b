"""What goes wrong on hosts: said clearly, nothing lost, and over when its cause is over."""

import os
import time

import agent
from build.cache import run as call
from host import MTTY, clean, of, other
from stack import Wrong


def counts_on(lab, ident, before, what):
    """The guest was not touched."""
    said = lab.cloud.said(ident, lambda s: s.ticks and s.ticks[-1] > before, f"its guest counts on {what}")
    lab.tick(f"{what}: its guest counts on, and was not booted again", said.boots == 1, f"{said.boots} boots")


def begun(lab, name, node, *more, flavor="vgpu", image="lab"):
    """Asks for a server on a host, and waits for nothing."""
    return lab.cloud.run("server", "create", "--flavor", flavor, "--image", image, "--nic", "none",
                         "--config-drive", "true", "--host", node.name, *more, name, "-c", "id").table["id"]


def failed(lab, ident, *words):
    """The server is in ERROR, and its fault has these words."""
    fault = lab.cloud.status(ident, "ERROR")["fault"]["message"]
    lab.tick(f"its fault says why: {fault}", all(word in fault for word in words), fault)
    lab.cloud.delete(ident)


def libvirt_restarted(lab, node, ident):
    """libvirtd is started anew, and then killed, under the agent and its guest."""
    before = lab.cloud.console(ident).ticks[-1]
    for how in ("restart", "kill -s KILL"):
        node.run(f"systemctl {how} libvirtd", timeout=180)
        counts_on(lab, ident, before, f"libvirtd after `{how}`")
        lab.cloud.run("server", "pause", ident)
        lab.cloud.status(ident, "PAUSED")
        lab.cloud.run("server", "unpause", ident)
        lab.cloud.status(ident, "ACTIVE")
        lab.tick("and the agent carries out what is asked of it")


def libvirt_hung(lab, node, ident):
    """libvirtd does not answer for a while: the host stays, what is asked of it is done afterwards."""
    before = lab.cloud.console(ident).ticks[-1]
    node.run("systemctl kill -s STOP libvirtd")
    made = begun(lab, "patient", node)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if lab.cloud.server(made)["status"] != "BUILD":
            raise Wrong("a server was built, or failed, while libvirtd hung")
        time.sleep(2)
    lab.cloud.hosts([one.name for one in lab.nodes])
    lab.tick("while libvirtd hangs its host is up, and the server is being built")
    node.run("systemctl kill -s CONT libvirtd")
    lab.cloud.status(made, "ACTIVE")
    lab.tick("when libvirtd answers again the server becomes ACTIVE")
    counts_on(lab, ident, before, "after libvirtd hung")
    lab.cloud.delete(made)


def disk_full(lab, node):
    """There is no room for a guest's disks, not even what only root may use."""
    node.run("fallocate -l $(($(stat -f -c '%f * %S' /var/lib) - (64 << 20))) /var/lib/filled; "
             "dd if=/dev/zero of=/var/lib/filled.rest bs=64k 2>/dev/null; true")
    try:
        failed(lab, begun(lab, "no-room", node, flavor="plain", image="other"), "space")
    finally:
        node.run("rm -f /var/lib/filled*")


def image_corrupt(lab, node):
    """An image that is no image is refused when it comes; one that breaks off is found by the host."""
    path = os.path.join(lab.cloud.folder, "broken.qcow2")
    create = ["image", "create", "broken", "--disk-format", "qcow2", "--container-format", "bare", "--file", path]
    with open(path, "wb") as file:
        file.write(b"QFI\xfb\0\0\0\3" + bytes(range(256)) * 4096)
    refused = lab.cloud.run(*create, fails=True)
    lab.tick("a file that only begins like an image is refused", "415" in refused.err, refused.err)
    call("qemu-img", "convert", "-O", "qcow2", os.path.join(lab.cloud.guest, "lab.raw"), path)
    os.truncate(path, os.path.getsize(path) // 2)
    made = lab.cloud.run(*create, "-c", "id", "-c", "status").table["id"]
    failed(lab, begun(lab, "corrupt", node, flavor="plain", image=made), "image", made)


def wrong_type(lab, node, ident):
    """The configuration names a type of mediated device that the host does not have."""
    before = lab.cloud.console(ident).ticks[-1]
    node.run("sed -i 's/mtty-1/mtty-9/' /etc/kilonova/agent.conf; systemctl restart kilonova-agent", timeout=180)
    lab.cloud.hosts([one.name for one in lab.nodes])
    code, said = node.attempt("kilonova-agent check", timeout=120)
    lab.tick("the check names the type and the option", code == 1 and "mtty-9" in said
             and "enabled_mdev_types" in said, said)
    node.until("journalctl -u kilonova-agent -o cat -n 200", lambda log: "mtty-9" in log, "its log names the type")
    counts_on(lab, ident, before, "with a wrong mediated device type")
    node.run("sed -i 's/mtty-9/mtty-1/' /etc/kilonova/agent.conf; systemctl restart kilonova-agent", timeout=180)
    lab.cloud.hosts([one.name for one in lab.nodes])
    clean(lab, ident)


def clock(lab, node):
    """A host whose clock is ten minutes off."""
    node.run("date -s '+10 minutes'")
    try:
        code, said = node.attempt("kilonova-agent check", timeout=120)
        lab.tick("the check says how much the clock is off", code == 1 and "clock" in said, said)
        lab.cloud.hosts([one.name for one in lab.nodes])
        server = lab.cloud.boot("plain", "off-clock", "--host", node.name)
        lab.tick("the host is up, and boots servers")
        lab.cloud.delete(server["id"])
    finally:
        node.run("date -s '-10 minutes'")


def twin(node, kept, name):
    """Starts a second agent, with a copy of a host's identity."""
    node.write("/root/twin.tar.b64", kept)
    node.run("mkdir -p /root/twin && base64 -d /root/twin.tar.b64 | tar -C /root/twin -xf - && "
             f"sed -e 's/^host = .*/host = {name}/' /etc/kilonova/agent.conf >/root/twin.conf")
    node.run("setsid kilonova-agent run --config /root/twin.conf --state-dir /root/twin/kilonova-agent "
             ">/root/twin.log 2>&1 </dev/null & echo $! >/root/twin.pid")


def no_twin(node):
    """Ends it, and takes away what it was made of."""
    node.run("kill -KILL $(cat /root/twin.pid); rm -rf /root/twin*; true")


def twice(lab, first, second):
    """A second agent with the identity of a host. On another machine it is not let in; on the same one
    the later is, and the other ends."""
    kept = first.run("tar -C /var/lib --exclude=instances -cf - kilonova-agent 2>/dev/null | base64 -w 0")
    twin(second, kept, first.name)
    try:
        second.until("cat /root/twin.log", lambda log: "is another machine" in log, "the copy is told that it is one")
        state = first.run("systemctl is-active kilonova-agent")
        lab.tick("a copy on another machine is not let in, and the host goes on", state == "active", state)
    finally:
        no_twin(second)
    twin(first, kept, first.name)
    try:
        first.until("systemctl show -p ActiveState,ExecMainStatus kilonova-agent", lambda said: "ExecMainStatus=3" in said,
                    "the first one ends with exit code 3", timeout=60)
        lab.tick("beside a copy on the same machine the first ended with exit code 3, and is not started again")
        said = agent.log(first)
        lab.tick("its log says why", "another" in said, said[-600:])
    finally:
        no_twin(first)
    first.run("systemctl reset-failed kilonova-agent; systemctl start kilonova-agent")
    lab.cloud.hosts([one.name for one in lab.nodes])


def run(lab):
    """One guest, and everything around it."""
    lab.heading("What goes wrong on hosts")
    ident = lab.cloud.boot("vgpu", "unharmed")["id"]
    said = lab.cloud.said(ident)
    lab.tick("the guest sees its device", said.count(MTTY) == 1)
    node = of(lab, lab.cloud.server(ident)["OS-EXT-SRV-ATTR:host"])
    libvirt_restarted(lab, node, ident)
    libvirt_hung(lab, node, ident)
    disk_full(lab, node)
    image_corrupt(lab, node)
    wrong_type(lab, node, ident)
    clock(lab, other(lab, node.name))
    lab.cloud.delete(ident)
    clean(lab)
    twice(lab, *lab.nodes)
    lab.cloud.doctor()
