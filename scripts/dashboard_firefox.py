#!/usr/bin/env python3
"""Uses the dashboard in a headless Firefox, against a real `kilonova serve --dev`.

    scripts/dashboard_firefox.py [--kilonova PROGRAM] [--database URL] [--verbose]

Checks what depends on the browser: the login with its cookie and the page's policy, a launch, the stream of an open
page, times in the zone of the browser, an upload, the floor and the console. `dashboard_browser.py` visits every page,
in Chromium. Firefox must log no error. Firefox is Debian's (`scripts/bootstrap.sh firefox`); nothing but loopback is
reached.
"""

import os
import sys
import urllib.parse

import firefox
from cli import Lane
from console_browser import INK
from frame import options_of, parsed, tell

# Presses the button or the link with a text; false if there is none.
PRESS = """
const all = [...document.querySelectorAll("button, a")];
const found = all.find(one => one.innerText.trim() === arguments[0]);
found?.click();
return found !== undefined;
"""


def press(browser, text):
    """Presses a button or a link, once it is there."""
    browser.until(f"no {text}", lambda: browser.run(PRESS, text))


def journey(serve, lane, browser, base, folder):
    """The journey of a user."""
    tick = lane.tick
    browser.open(base)
    browser.shows("Log in")
    browser.send("#user", "admin")
    browser.send("#password", "wrong")
    press(browser, "Log in")
    browser.shows("is wrong")
    tick("a wrong password is refused on the page")
    browser.send("#password", serve.openrc()["OS_PASSWORD"])
    press(browser, "Log in")
    browser.shows("This project has no servers yet.")
    tick("the password is accepted", browser.run("return document.cookie") == "", "no script sees the cookie")

    press(browser, "Launch")
    browser.element("#launch")
    browser.send("#name", "gpu-one")
    browser.run("[...document.querySelectorAll('#launch label')].find(one => one.innerText.startsWith('tiny-vgpu')).click()")
    browser.until("no count of capacity", lambda: "now, on" in browser.text("#room"))
    tick("the form says how many fit", True, browser.text("#room"))
    browser.run("document.querySelector('#launch .primary').click()")
    browser.shows("Overview")
    browser.run("window.unchanged = true")
    browser.until("not active", lambda: "active" in browser.text("#server .head"))
    tick("the server becomes active on its page", browser.run("return window.unchanged === true"), "no reload")
    local = "return document.querySelector('time').dataset.local === ''"
    tick("times are in the zone of the browser", browser.until("times are not local", lambda: browser.run(local)))
    press(browser, "Console")
    browser.element("iframe.console")
    browser.call("WebDriver:SwitchToFrame", id=0)
    browser.until("no console", lambda: (seen := browser.run(INK)) and seen[2] > 100)
    browser.call("WebDriver:SwitchToFrame")
    tick("the console is on a page")

    browser.open(f"{base}/dashboard/servers")
    browser.shows("gpu-one")
    browser.run("window.unchanged = true")
    lane.run("server", "stop", "gpu-one")
    browser.until("not shut off", lambda: "shut off" in browser.text("#list"))
    tick("the open list shows another client's change", browser.run("return window.unchanged === true"))

    browser.open(f"{base}/dashboard/floor")
    browser.shows("3 hosts")
    browser.run("window.unchanged = true")
    owned = "return document.querySelectorAll('a.unit.owned').length"
    before = browser.run(owned)
    lane.run("server", "delete", "--wait", "gpu-one")
    browser.until("the unit is still owned", lambda: browser.run(owned) < before)
    tick("the open floor shows a unit that is released", browser.run("return window.unchanged === true"))

    browser.open(f"{base}/dashboard/new/image")
    browser.send("#name", "uploaded")
    browser.run("document.getElementById('disk_format').value = 'raw'")
    press(browser, "Create")
    browser.shows("has no data yet")
    huge, disk = os.path.join(folder, "huge.raw"), os.path.join(folder, "disk.raw")
    with open(huge, "wb") as file:
        file.truncate((1 << 40) + 1)
    with open(disk, "wb") as file:
        file.write(os.urandom(1 << 20) * 8)
    browser.send("#file", huge)
    browser.run("document.querySelector('#upload .primary').click()")
    browser.shows("An image may have at most")
    tick("a file that is too large is refused before it is sent", "without data" in browser.text())
    browser.send("#file", disk)
    browser.run("document.querySelector('#upload .primary').click()")
    browser.until("not active", lambda: "active" in browser.text("#image .head"))
    tick("a file is uploaded", "8.0 MiB" in browser.text())

    for page in ("capacity", "networks", "quotas", "doctor", "enrolment"):
        browser.open(f"{base}/dashboard/{page}")
        browser.shows("Kilonova")
    press(browser, "Log out")
    browser.shows("You are logged out.")
    errors = browser.errors(base)
    tick("Firefox has logged no error", not errors, "; ".join(errors))


def main():
    parser = options_of(__doc__, "examples/nodes/tour.toml")
    options = parsed(parser)
    found = firefox.program()
    if not found:
        parser.error("Firefox is missing; run scripts/bootstrap.sh firefox")

    def story(serve, clients, folder):
        command = serve.command
        serve.command = lambda: [*command(), "--dev"]
        serve.start()
        parts = urllib.parse.urlsplit(serve.url)
        browser = firefox.Firefox(found)
        try:
            journey(serve, Lane(clients), browser, f"{parts.scheme}://{parts.netloc}", folder)
        finally:
            browser.quit()

    return tell("dashboard in Firefox", options, story)


if __name__ == "__main__":
    sys.exit(main())
