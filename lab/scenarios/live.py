"""Live migration of a guest with a mediated device, under load: to the other host, back, aborted, and failed."""

import os
import re
import textwrap
import time

from host import MTTY, attached, clean, of, other
from nodes.node import PATIENCE
from stack import Wrong

# Keeps a part of the guest's memory changing.
LOAD = """\
    #!/bin/sh
    while :; do dd if=/dev/zero of=/tmp/load bs=64k count=64 conv=notrunc 2>/dev/null; usleep 50000; done
    """


def host_of(lab, ident):
    return lab.cloud.server(ident)["OS-EXT-SRV-ATTR:host"]


def migrate(lab, ident, target):
    """Starts a live migration."""
    lab.cloud.run("server", "migrate", "--live-migration", "--block-migration", "--host", target.name, ident)


def settled(lab, ident, timeout=300):
    """Waits until the server has settled; returns the time this took."""
    begun = time.monotonic()
    lab.cloud.status(ident, "ACTIVE", timeout)
    return time.monotonic() - begun


def goes_on(lab, ident, before, what):
    """Checks that the guest keeps counting without a reboot and has its device."""
    log = lab.cloud.guest_log(ident, lambda s: s.ticks and s.ticks[-1] > before, f"its guest keeps counting {what}")
    lab.tick(f"{what}: the counter continued from {before}", min(log.ticks[-20:]) >= 0
             and log.whole.count("guest: boot ") <= 1, log.whole[-300:])
    node = of(lab, host_of(lab, ident))
    lab.tick("the domain has one mediated device", len(attached(node, ident)) == 1)


def slow(node, ident, mib):
    """Limits the speed of a domain's migration, to gain time."""
    node.run(f"virsh -q migrate-setspeed {ident} {mib}")


def under_way(lab, ident, what="memory", timeout=120):
    """The running migration, once its memory is being copied, or its disk, which is copied first."""
    deadline = time.monotonic() + timeout * PATIENCE
    while True:
        found = lab.cloud.api.expect(200, "GET", f"/compute/v2.1/servers/{ident}/migrations")["migrations"]
        if found and found[0]["status"] == "running" and found[0][f"{what}_processed_bytes"]:
            return found[0]
        if time.monotonic() > deadline:
            raise Wrong(f"no migration is running after {timeout} s: {found}")
        time.sleep(0.3)


def there_and_back(lab, ident):
    """Migrates to the other host and back, and measures the times."""
    for way in ("there", "back"):
        source = of(lab, host_of(lab, ident))
        target = other(lab, source.name)
        before = lab.cloud.console(ident).ticks[-1]
        migrate(lab, ident, target)
        took = settled(lab, ident)
        lab.tick(f"the server is on {target.name}", host_of(lab, ident) == target.name)
        goes_on(lab, ident, before, f"live migration {way}")
        job = target.run(f"virsh domjobinfo {ident} --completed")
        for what, words in (("total", r"Time elapsed: +(\d+)"), ("downtime", r"Total downtime: +(\d+)")):
            found = re.search(words, job)
            if found:
                lab.measure(f"live migration {way}, {what}, as measured by libvirt", f"{found.group(1)} ms")
        lab.measure(f"live migration {way}, from the command's end to ACTIVE", f"{took:.1f} s")
        clean(lab, ident)


def aborted(lab, ident):
    """The user aborts a migration while the disk is being copied."""
    source = of(lab, host_of(lab, ident))
    before = lab.cloud.console(ident).ticks[-1]
    slow(source, ident, 1)
    migrate(lab, ident, other(lab, source.name))
    shown = under_way(lab, ident, "disk")
    lab.tick("its progress is shown", shown["disk_remaining_bytes"] > 0
             and 0 < shown["disk_processed_bytes"] < shown["disk_total_bytes"], str(shown))
    lab.cloud.run("server", "migration", "abort", ident, str(shown["id"]))
    settled(lab, ident)
    slow(source, ident, 8192)
    lab.tick("the server is still on its host", host_of(lab, ident) == source.name)
    goes_on(lab, ident, before, "aborted live migration")
    clean(lab, ident)


def failed(lab, ident):
    """The destination's QEMU is killed while memory is being copied."""
    source = of(lab, host_of(lab, ident))
    target = other(lab, source.name)
    before = lab.cloud.console(ident).ticks[-1]
    migrate(lab, ident, target)
    under_way(lab, ident)
    coming = f"/run/libvirt/qemu/{lab.cloud.server(ident)['OS-EXT-SRV-ATTR:instance_name']}.pid"
    target.until(f"cat {coming}", lambda out: out.isdigit(), "the guest is arriving")
    target.run(f"kill -KILL $(cat {coming})")
    settled(lab, ident)
    lab.tick("the server is still on its host", host_of(lab, ident) == source.name)
    goes_on(lab, ident, before, "failed live migration")
    clean(lab, ident)


def run(lab):
    """One guest under load, four migrations, and one more to check that nothing is left over."""
    lab.heading("Live migration of a guest with a mediated device")
    script = os.path.join(lab.cloud.folder, "load.sh")
    with open(script, "w", encoding="utf-8") as file:
        file.write(textwrap.dedent(LOAD))
    ident = lab.cloud.boot("vgpu", "mover", "--user-data", script)["id"]
    log = lab.cloud.guest_log(ident)
    lab.tick("the guest sees its device", log.count(MTTY) == 1, str(log.pci))
    there_and_back(lab, ident)
    aborted(lab, ident)
    failed(lab, ident)
    there_and_back(lab, ident)
    lab.cloud.delete(ident)
    clean(lab)
    lab.cloud.doctor()
