"""Servers with devices, by each way to request one: what their guests see, and the ledger's view."""

import os
import re
import textwrap

from host import IGB, MTTY, NVME, clean

FLAVORS = {
    "vgpu-two": ["resources:VGPU=2"],
    "vgpu-profile": ["accel:device_profile=lab-vgpu"],
    "nvme": ["resources:CUSTOM_PCI_1B36_0010=1"],
    "nvme-alias": ["pci_passthrough:alias=nvme:1"],
    "nic-profile": ["accel:device_profile=lab-nic"],
}
PROFILES = {
    "lab-vgpu": '[{"resources:VGPU": "1"}]',
    "lab-nic": '[{"resources:CUSTOM_PCI_8086_10CA": "1"}]',
}


def asked(lab, flavor, ids, count, provider, resources):
    """One server: its guest sees the device and its allocation is correct; then it is deleted."""
    cloud = lab.cloud
    server = cloud.boot(flavor, f"lab-{flavor}")
    ident = server["id"]
    log = cloud.guest_log(ident)
    lab.tick(f"the guest sees {count} x {ids}", log.count(ids) == count, str(log.pci))
    host = server["OS-EXT-SRV-ATTR:host"]
    held = cloud.devices(ident)
    lab.tick(f"the server has an allocation of {resources} on {host}_{provider}",
             held == {f"{host}_{provider}": resources}, str(held))
    cloud.run("resource", "provider", "allocation", "show", ident)
    clean(lab, ident)
    cloud.delete(ident)
    clean(lab)


def told(lab):
    """The content of the config drive in a guest."""
    cloud = lab.cloud
    script = os.path.join(cloud.folder, "user-data.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent("""\
            #!/bin/sh
            echo "user data ran as $(hostname)" >/dev/console
            """))
    key = os.path.join(cloud.folder, "key.pub")
    cloud.run("keypair", "create", "--public-key", key, "lab", "-c", "name", "-c", "fingerprint")
    server = cloud.boot("plain", "told", "--user-data", script, "--key-name", "lab")
    # A log that is read while the guest writes may end within a line.
    log = cloud.guest_log(server["id"], lambda s: s.ready and re.search("user data ran.*\n", s.whole), "its user data ran")
    lab.tick("its host name is from the config drive", (log.hostname or "").partition(".")[0] == "told", str(log.hostname))
    lab.tick("its user data was executed", "user data ran as told" in log.text, log.text[-800:])
    lab.tick("its SSH key is installed", "guest: keys 1" in log.text, log.text[-800:])
    lab.tick("its root disk has the flavor's size and the image's files",
             log.disks.get("vda", (0, "", 0))[:2] == ((1 << 30) // 512, "lab"), str(log.disks))
    shown = cloud.run("console", "log", "show", "--lines", "5", server["id"])
    lab.tick("the client shows its console log", "tick" in shown.out)
    cloud.delete(server["id"])


def run(lab):
    """Every way to request a device, in sequence."""
    lab.heading("Servers with devices")
    cloud = lab.cloud
    for name, groups in PROFILES.items():
        cloud.run("accelerator", "device", "profile", "create", name, groups, "-c", "name", "-c", "groups")
    for name, properties in FLAVORS.items():
        cloud.flavor(name, *properties)
    asked(lab, "vgpu", MTTY, 1, "mtty_mtty", {"VGPU": 1})
    told(lab)
    asked(lab, "vgpu-profile", MTTY, 1, "mtty_mtty", {"VGPU": 1})
    asked(lab, "vgpu-two", MTTY, 2, "mtty_mtty", {"VGPU": 2})
    for flavor in ("nvme", "nvme-alias"):
        asked(lab, flavor, NVME, 1, "0000:02:00.0", {"CUSTOM_PCI_1B36_0010": 1})
    asked(lab, "nic-profile", IGB, 1, "0000:01:00.0", {"CUSTOM_PCI_8086_10CA": 1})
    cloud.doctor()
