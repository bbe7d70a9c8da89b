#!/usr/bin/env python3
"""Views the display of a simulated guest in a headless Chromium, as a user does.

    scripts/console_browser.py [--kilonova PROGRAM] [--picture FILE] [--verbose]

`openstack console url show` gives the URL. Chromium loads the page, noVNC shows the guest's screen, and keys
that are typed appear on it; also within the frame of another site's page, as in Horizon. The server is shut
off and started while the page is open. `--picture` saves a screenshot. Chromium and its driver are Debian's;
selenium is in .venv-browser (`scripts/bootstrap.sh browser`). Nothing but loopback is resolved or reached.
"""

import glob
import http.server
import os
import shutil
import site
import sys
import tempfile
import threading
import time

from cli import Lane
from consoles import Story
from frame import ROOT, options_of, parsed, tell
from stack import Wrong, free_port

# Counts the pixels of the canvas that are lighter than the background, in its upper and in its lower part: the
# server's name, and what was typed.
INK = """
const canvas = document.querySelector("#screen canvas");
if (!canvas || !canvas.width) return null;
const {width, height} = canvas;
const pixels = canvas.getContext("2d").getImageData(0, 0, width, height).data;
const ink = [0, 0];
for (let at = 0; at < pixels.length; at += 4) {
  if (pixels[at] > 0xc0) ink[at / 4 / width < 56 ? 0 : 1] += 1;
}
return [width, height, ...ink];
"""
# How long a page may take on a busy machine, in seconds.
PATIENCE = 60


def programs():
    """Selenium, Chromium and its driver; `Wrong` names what is missing."""
    for folder in glob.glob(os.path.join(ROOT, ".venv-browser/lib/python3*/site-packages")):
        site.addsitedir(folder)
    try:
        from selenium import webdriver
    except ImportError:
        raise Wrong("selenium is missing; run scripts/bootstrap.sh browser") from None
    found = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in found:
        raise Wrong("chromium or chromedriver is missing; run scripts/bootstrap.sh browser")
    return webdriver, *found


def selenium(parser):
    """Like `programs`, but ends the script if one is missing."""
    try:
        return programs()
    except Wrong as why:
        parser.error(str(why))


class Browser:
    """A headless Chromium with a separate profile."""

    def __init__(self, webdriver, chromium, chromedriver, folder):
        from selenium.webdriver.chrome.service import Service
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for argument in (
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-extensions",
                "--disable-sync", "--window-size=900,600", f"--user-data-dir={folder}",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(chromedriver))
        self.driver.set_script_timeout(PATIENCE)
        self.driver.set_page_load_timeout(PATIENCE)

    def until(self, what, wanted):
        """Waits until `wanted()` is true and returns it."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = wanted()
            if found:
                return found
            if time.monotonic() > deadline:
                raise Wrong(f"{what}: the page says {self.status()!r}; its log: {self.driver.get_log('browser')}")
            time.sleep(0.1)

    def status(self):
        """The line of the page that shows the state of the connection."""
        return self.driver.execute_script('return document.getElementById("status")?.textContent')

    def ink(self):
        """Width and height of the screen, and the light pixels of its two lines; None without a screen."""
        return self.driver.execute_script(INK)

    def shows(self):
        """Waits until the screen shows a name, and returns it as `ink`."""
        return self.until("no picture", lambda: (seen := self.ink()) and seen[2] > 100 and seen)

    def type(self, text):
        """Presses keys on the screen."""
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.by import By
        canvas = self.driver.find_element(By.CSS_SELECTOR, "#screen canvas")
        ActionChains(self.driver).click(canvas).send_keys(text).perform()


class Frame(http.server.BaseHTTPRequestHandler):
    """The page of another site that has the console in a frame, as Horizon's tab."""

    url = ""

    def do_GET(self):
        """Answers with the page."""
        body = f'<iframe src="{self.url}" width="860" height="520"></iframe>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Prints nothing: the URL has a token."""


def look(told, lane, browser, picture):
    """Uses the page as a user does, and checks it."""
    url = told.url("--novnc")
    browser.driver.get(url)
    width, height, name, typed = browser.shows()
    lane.tick("noVNC shows the guest's screen", (width, height, typed) == (640, 400, 0), f"{width}x{height}")
    lane.tick("the page is connected", browser.status() == "Connected", browser.status())
    browser.until("no title", lambda: browser.driver.title == "one")
    lane.tick("the title is the server's name")
    browser.type("kilonova 7")
    browser.until("keys do not appear", lambda: browser.ink()[3] > 100)
    lane.tick("keys that are typed appear on the screen", browser.ink()[2] == name)
    if picture:
        browser.driver.save_screenshot(picture)
    browser.type("\ue007")
    browser.until("Return does nothing", lambda: browser.ink()[3] == 0)
    lane.tick("Return ends the line")
    lane.run("server", "stop", "one")
    told.becomes("SHUTOFF")
    browser.until("no reason", lambda: browser.status().startswith("The server is shut off."))
    lane.tick("the page says that the server is shut off")
    lane.run("server", "start", "one")
    told.becomes("ACTIVE")
    browser.until("no reconnection", lambda: browser.status() == "Connected" and browser.shows())
    lane.tick("it shows the screen again when the server runs")
    page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Frame)
    Frame.url = told.url("--novnc")
    threading.Thread(target=page.serve_forever, daemon=True).start()
    browser.driver.get(f"http://127.0.0.1:{page.server_port}/")
    browser.driver.switch_to.frame(0)
    browser.shows()
    lane.tick("another site's page shows it in a frame", browser.status() == "Connected")
    page.shutdown()
    browser.driver.switch_to.default_content()
    browser.driver.get(url[:-4] + "0000")
    browser.until("no refusal", lambda: "token" in browser.status())
    lane.tick("a wrong token is refused on the page", "again" not in browser.status(), browser.status())
    # noVNC logs each end of a connection as an error; only others, such as a missing file, count.
    severe = [line["message"] for line in browser.driver.get_log("browser")
              if line["level"] == "SEVERE" and "Failed when connecting: Connection closed" not in line["message"]]
    lane.tick("the page has no errors", not severe, "; ".join(severe))


def main():
    parser = options_of(__doc__)
    parser.add_argument("--picture", help="file for a screenshot (PNG)")
    options = parsed(parser)
    if options.way != "plain":
        parser.error("the host of this script trusts no authority")
    programs = selenium(parser)

    def story(serve, clients, folder):
        lane = Lane(clients)
        told, browser = Story(serve, lane, folder), None
        profile = tempfile.mkdtemp(prefix="kilonova-chromium-")
        try:
            told.start()
            browser = Browser(*programs, profile)
            look(told, lane, browser, options.picture)
        finally:
            if browser:
                browser.driver.quit()
            shutil.rmtree(profile, ignore_errors=True)
            told.away()

    return tell("the display of a simulated guest in Chromium", options, story, port=free_port())


if __name__ == "__main__":
    sys.exit(main())
