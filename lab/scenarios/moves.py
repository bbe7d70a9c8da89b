"""Resize, revert and cold migration of a server with a mediated device."""

from host import clean
from scenarios.life import begun


def moves(life):
    """Resize and revert, cold migration."""
    life.cloud.flavor("vgpu-more", "resources:VGPU=1", "lab:more=yes")
    for verb, flavor in (("revert", "vgpu-more"), ("confirm", "vgpu-more")):
        life.do("resize", "--flavor", flavor)
        life.reaches("VERIFY_RESIZE")
        life.boots += 1
        life.has_device(f"resize, before {verb}")
        life.do("resize", verb)
        life.reaches("ACTIVE")
        if verb == "revert":
            # The revert is another boot, of the disk from before the resize.
            life.has_device("resize and revert")
    clean(life.lab, life.ident)
    before = life.cloud.server(life.ident)["OS-EXT-SRV-ATTR:host"]
    life.do("migrate")
    life.reaches("VERIFY_RESIZE")
    life.boots += 1
    life.has_device("cold migration")
    life.do("migrate", "confirm")
    server = life.reaches("ACTIVE")
    life.lab.tick("the server is on the other host", server["OS-EXT-SRV-ATTR:host"] != before)
    clean(life.lab, life.ident)


def run(lab):
    """One server, there and back."""
    lab.heading("Cold moves of a server with a mediated device")
    life = begun(lab, "moved")
    moves(life)
    lab.cloud.delete(life.ident)
    clean(lab)
    lab.cloud.doctor()
