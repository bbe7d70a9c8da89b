"""The display of a real guest by its console URL, before, through and after a live migration: with a websocket, and as a
user sees it, by noVNC in a headless Chromium."""

import os
import tempfile
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

from console_browser import Browser, programs
from consoles import Socket
from host import clean, of, other
from nodes.node import PATIENCE
from scenarios.live import host_of, migrate, settled
from stack import Gone, Wrong

# RFB's message SetEncodings with only the raw encoding, which every server supports.
RAW = bytes([2, 0, 0, 1, 0, 0, 0, 0])
# The size of noVNC's canvas and the number of its colours; None without a picture.
COLOURS = """
const canvas = document.querySelector("#screen canvas");
if (!canvas || !canvas.width) return null;
const {width, height} = canvas;
const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, width, height).data.buffer);
return [width, height, new Set(pixels).size];
"""


def novnc(lab, ident, what):
    """Views the display as a user does, and saves a screenshot of the page next to the logs."""
    try:
        parts = programs()
    except Wrong as why:
        lab.say(f"skipped: the display in a browser: {why}")
        return
    with tempfile.TemporaryDirectory() as folder:
        browser = Browser(*parts, folder)
        try:
            browser.driver.get(lab.cloud.run("console", "url", "show", "--novnc", ident, "-c", "url").table["url"])
            width, height, colours = browser.until("no picture", lambda: (
                (seen := browser.driver.execute_script(COLOURS)) and seen[2] >= 2 and seen))
            lab.tick(f"{what}: noVNC shows a picture of {width}x{height} with {colours} colours",
                     browser.status() == "Connected", str(browser.status()))
            file = os.path.join(lab.cloud.folder, f"novnc-{what.replace(' ', '-')}.png")
            browser.driver.save_screenshot(file)
            lab.say(f"the page is in {file}")
        finally:
            browser.driver.quit()


def browser(lab, ident):
    """A websocket to the display, after the handshake of RFB, with the display's name and size."""
    url = lab.cloud.run("console", "url", "show", "--novnc", ident, "-c", "url").table["url"]
    parts = urllib.parse.urlsplit(url)
    inner = urllib.parse.parse_qs(parts.query)["path"][0]
    socket = Socket(urllib.parse.urlunsplit((parts.scheme, parts.netloc, "/console/websockify", inner.lstrip("?"), "")),
                    origin=f"{parts.scheme}://{parts.netloc}")
    return socket, *socket.rfb()


def shown(lab, socket, width, height, what):
    """Reads the picture of QEMU's display, and saves it next to the logs."""
    socket.send(RAW)
    socket.send(bytes([3, 0]) + bytes(4) + width.to_bytes(2, "big") + height.to_bytes(2, "big"))
    pixels, seen = bytearray(width * height * 4), 0
    while seen < width * height:
        kind, _, count = socket.read(1)[0], socket.read(1), int.from_bytes(socket.read(2), "big")
        if kind != 0:
            raise Wrong(f"the display sent a message of kind {kind}, not a picture")
        for _ in range(count):
            left, top, wide, high = (int.from_bytes(socket.read(2), "big") for _ in range(4))
            if socket.read(4) != bytes(4):
                raise Wrong("the display does not use the raw encoding")
            piece = socket.read(wide * high * 4)
            for row in range(high):
                at = ((top + row) * width + left) * 4
                pixels[at:at + wide * 4] = piece[row * wide * 4:(row + 1) * wide * 4]
            seen += wide * high
    colors = {bytes(pixels[at:at + 3]) for at in range(0, len(pixels), 4)}
    lab.tick(f"{what}: the display shows a picture of {width}x{height}", len(colors) >= 2, f"{len(colors)} colors")
    file = os.path.join(lab.cloud.folder, f"display-{what.replace(' ', '-')}.ppm")
    with open(file, "wb") as picture:
        picture.write(f"P6 {width} {height} 255\n".encode())
        picture.write(b"".join(bytes((pixels[at + 2], pixels[at + 1], pixels[at])) for at in range(0, len(pixels), 4)))
    lab.say(f"the picture is in {file}")


def listens(lab, ident):
    """Checks that the guest's display listens on no port."""
    node = of(lab, host_of(lab, ident))
    lab.tick("the display listens on no port", "<listen type='none'/>" in node.run(f"virsh -q dumpxml {ident}"))
    ports = node.run("ss -Hltn 'sport >= :5900 and sport <= :5999' || true")
    lab.tick("no port of a display is open on the host", not ports.strip(), ports)


def ended(socket):
    """Reads an open console until the server closes it; returns the code and the reason. Has no time limit, and answers
    pings as a browser does: the server closes a console whose client does not."""
    socket.socket.settimeout(None)
    try:
        return socket.closed()
    except (Gone, OSError) as error:
        return None, str(error)


def run(lab):
    """One guest: its display, a key, a live migration, and its display on the other host."""
    lab.heading("The display of a guest, through a live migration")
    ident = lab.cloud.boot("vgpu", "watched")["id"]
    lab.cloud.guest_log(ident)
    listens(lab, ident)
    novnc(lab, ident, "before the migration")
    socket, name, width, height = browser(lab, ident)
    lab.say(f"QEMU calls the display {name!r}")
    shown(lab, socket, width, height, "before the migration")
    # The Return key, pressed and released.
    for is_down in (1, 0):
        socket.send(bytes([4, is_down, 0, 0]) + (0xFF0D).to_bytes(4, "big"))
    source = of(lab, host_of(lab, ident))
    target = other(lab, source.name)
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(ended, socket)
        try:
            migrate(lab, ident, target)
            settled(lab, ident)
            lab.tick(f"the server is on {target.name}", host_of(lab, ident) == target.name)
            code, reason = end.result(60 * PATIENCE)
        finally:
            # The thread ends with the connection.
            socket.shut()
    lab.tick("the migration ends the console with 1012", code == 1012, f"{code} {reason}")
    socket, name, width, height = browser(lab, ident)
    shown(lab, socket, width, height, "after the migration")
    socket.close()
    novnc(lab, ident, "after the migration")
    listens(lab, ident)
    lab.cloud.delete(ident)
    clean(lab)
    lab.cloud.doctor()
