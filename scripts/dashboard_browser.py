#!/usr/bin/env python3
"""Uses the dashboard in a headless Chromium, as a person does, against a real `kilonova serve --dev`.

    scripts/dashboard_browser.py [--kilonova PROGRAM] [--database URL] [--pictures FOLDER] [--axe FILE] [--verbose]

Logs in, launches a vGPU server and sees it become active without a reload, has a request explained that does not
fit, operates a server, opens its console; then, as an operator, watches the floor, disables a device, drains a host and reads the capacity; then
the same pages without script, on a narrow screen and in the dark, and as a member, who has no floor. Chromium's log must
have no error: a violation of the page's policy would be one. `--pictures` keeps a screenshot of every page, `--axe` (the
file axe.min.js of the package axe-core) examines the operators' pages. Nothing but loopback is resolved or reached.
"""

import os
import shutil
import sys
import tempfile
import time
import urllib.parse

from cli import Lane
from console_browser import Browser, selenium
from frame import options_of, parsed, tell


class Pages(Browser):
    """Chromium on the dashboard."""

    def __init__(self, programs, folder, base, pictures, axe=None):
        super().__init__(*programs, folder)
        self.base, self.pictures = base, pictures
        self.axe = axe and open(axe, encoding="utf-8").read()

    def status(self):
        """The beginning of the page, for a message."""
        return self.driver.execute_script("return document.body.innerText")[:600]

    def open(self, path):
        """Loads a page."""
        self.driver.get(self.base + path)

    def find(self, css):
        """The first element that a selector names, once it is there."""
        from selenium.webdriver.common.by import By
        return self.until(f"no {css}", lambda: next(iter(self.driver.find_elements(By.CSS_SELECTOR, css)), None))

    def has(self, text):
        """True if the page shows a text."""
        return text in self.driver.execute_script("return document.body.innerText")

    def text(self, css):
        """The text of an element, which the page may replace at any moment; empty without one."""
        return self.driver.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", css)

    def shows(self, text):
        """Waits until the page shows a text."""
        return self.until(f"no {text!r}", lambda: self.has(text))

    def click(self, path):
        """Clicks the first element that an XPath names; the page may replace it meanwhile."""
        from selenium.common.exceptions import StaleElementReferenceException

        def clicked():
            try:
                found = self.driver.find_elements("xpath", path)
                if found:
                    found[0].click()
                return bool(found)
            except StaleElementReferenceException:
                return False
        self.until(f"no {path}", clicked)

    def press(self, text):
        """Presses the button or the link with this text."""
        self.click(f"//button[normalize-space()={text!r}] | //a[normalize-space()={text!r}]")

    def fill(self, **fields):
        """Types into fields, by their ids."""
        for name, text in fields.items():
            field = self.find(f"#{name}")
            field.clear()
            field.send_keys(text)

    def flavor(self, name):
        """Chooses a flavor of the launch form."""
        self.click(f"//label[span={name!r}]")

    def picture(self, name):
        """Keeps a screenshot of the whole page."""
        if self.pictures:
            self.driver.save_screenshot(os.path.join(self.pictures, f"{name}.png"))

    def findings(self):
        """The serious findings of axe on this page; none without it."""
        if not self.axe:
            return []
        self.driver.execute_script(self.axe)
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document).then(done, error => done({passes: [], violations: [], error: String(error)}))")
        if not found["passes"]:
            return [f"axe examined nothing: {found.get('error')}"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in found["violations"]
                if one["impact"] in ("serious", "critical")]

    def emulate(self, width, height, dark):
        """Another screen."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def block(self, *urls):
        """Requests for these addresses fail; without any, none do."""
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": list(urls)})

    def severe(self):
        """The errors of Chromium's log, but those of answers that a check wants."""
        return [line["message"] for line in self.driver.get_log("browser")
                if line["level"] == "SEVERE" and "status of 40" not in line["message"]]


def look(serve, lane, browser):
    """The journey."""
    password = serve.openrc()["OS_PASSWORD"]
    tick = lane.tick
    browser.emulate(1200, 900, False)
    browser.open("/")
    browser.shows("Log in")
    tick("a browser is led from the root to the login", "/dashboard/login" in browser.driver.current_url)
    browser.picture("login")
    browser.fill(user="admin", password="wrong")
    browser.driver.find_element("css selector", "#password").submit()
    browser.shows("is wrong")
    tick("a wrong password is refused on the page")
    browser.fill(password=password)
    browser.driver.find_element("css selector", "#password").submit()
    browser.shows("This project has no servers yet.")
    tick("the password of the state directory lets in")

    browser.press("Launch")
    browser.fill(name="gpu-one")
    browser.flavor("tiny-vgpu")
    browser.until("no count of capacity", lambda: browser.has("fit now, on") or browser.has("fits now, on"))
    tick("the form says how many fit", True, browser.text("#room"))
    browser.fill(count="99")
    browser.find("#name").click()
    browser.shows("So many do not fit now.")
    tick("it says so before a request that does not fit")
    browser.picture("launch")
    browser.fill(count="1")
    # The list is open in this tab while the server is made by the client.
    browser.find("#name").click()
    browser.until("no room", lambda: not browser.has("So many do not fit now."))
    browser.driver.find_element("css selector", "#launch .primary").click()
    browser.shows("Overview")
    browser.driver.execute_script("window.unchanged = true")
    browser.until("not active", lambda: "active" in browser.text("#server .head"))
    tick("the server becomes active on its page", browser.driver.execute_script("return window.unchanged"), "no reload")
    browser.until("no device", lambda: "VGPU" in browser.text("#server"))
    tick("its page shows its device")
    browser.picture("server")
    local = browser.driver.execute_script("return document.querySelector('time').dataset.local !== undefined")
    tick("times are in the zone of the browser", local)

    browser.open("/dashboard/servers")
    browser.shows("gpu-one")
    browser.driver.execute_script("window.unchanged = true")
    begun = time.monotonic()
    lane.run("server", "stop", "gpu-one")
    browser.until("not shut off", lambda: "shut off" in browser.text("#list"))
    took = time.monotonic() - begun
    lane.run("server", "create", "--flavor", "tiny", "--image", "hello", "--network", "private", "--wait", "two")
    browser.until("no second server", lambda: "two" in browser.text("#list"))
    browser.until("it is not active", lambda: browser.text("#list").count("active") == 1)
    same = browser.driver.execute_script("return window.unchanged")
    tick("the open list shows another client's changes and new servers", same, f"{took:.1f} s with the command")
    browser.picture("servers")
    lane.run("server", "delete", "--wait", "two")
    browser.until("it is still there", lambda: "two" not in browser.text("#list"))
    tick("a deleted server leaves the open list")
    lane.run("server", "create", "--flavor", "tiny", "--image", "hello", "--network", "private", "--wait", "three")
    browser.press("three")
    browser.shows("Overview")
    lane.run("server", "delete", "--wait", "three")
    browser.shows("Not found")
    tick("the open page of a server that another client deletes says so")

    browser.open("/dashboard/servers")
    browser.press("gpu-one")
    browser.press("Start")
    browser.until("not active", lambda: "active" in browser.text("#server .head"))
    tick("a button starts it")
    browser.press("Shut off…")
    browser.shows("what is only in its memory is lost")
    browser.picture("confirm")
    browser.press("Cancel")
    browser.press("Console")
    frame = browser.find("iframe.console")
    browser.driver.switch_to.frame(frame)
    browser.until("no console", lambda: (seen := browser.ink()) and seen[2] > 100)
    browser.driver.switch_to.default_content()
    tick("the console is on a page")
    browser.picture("console")
    browser.press("gpu-one")
    browser.press("Console log")
    browser.shows("Console log")
    tick("the console log is on a page")

    flavor = ("flavor", "create", "--vcpus", "1", "--ram", "64", "--disk", "0")
    lane.run(*flavor, "--property", "resources:VGPU=40", "greedy")
    browser.open("/dashboard/launch")
    browser.flavor("greedy")
    browser.shows("It does not fit now.")
    tick("the condition that keeps a request off is named", "VGPU" in browser.text("#room"),
         browser.text("#room"))
    browser.fill(name="greedy")
    browser.driver.find_element("css selector", "#launch .primary").click()
    browser.shows("Why it failed")
    tick("a failed launch says why", "VGPU" in browser.text("#server"))
    browser.picture("failed")
    errors = browser.severe()
    tick("the pages have no errors", not errors, "; ".join(errors))


def operate(lane, browser):
    """The pages of operators: a device is disabled while the floor is open, a host is drained, the capacity is read."""
    tick = lane.tick
    browser.open("/dashboard/servers")
    browser.press("Floor")
    browser.shows("3 hosts")
    tick("the floor has every host", all(browser.has(name) for name in ("gpu1", "gpu2", "fpga1")))
    owned = lambda: browser.driver.execute_script(
        "return [...document.querySelectorAll('a.unit.owned')].map(one => one.title)")
    tick("the vGPU of the server is a unit of its GPU", any(title.startswith("gpu-one, project admin") for title in owned()),
         str(owned()))
    browser.driver.execute_script("window.unchanged = true")
    flavor = ("--flavor", "tiny-vgpu", "--image", "hello", "--network", "private", "--wait")
    lane.run("server", "create", *flavor, "floor-two")
    browser.until("no second unit", lambda: len(owned()) == 2)
    tick("an open floor shows a new server's unit", browser.driver.execute_script("return window.unchanged"), "no reload")
    floor = browser.driver.current_window_handle

    host = lane.run("server", "show", "-f", "value", "-c", "OS-EXT-SRV-ATTR:host", "gpu-one").out.strip()
    browser.driver.switch_to.new_window("tab")
    browser.emulate(1200, 900, False)
    browser.open(f"/dashboard/hosts/{host}")
    browser.shows("Owners of the devices")
    tick("a host's page has its devices and their owners", browser.has("taken") and browser.has("gpu-one"))
    browser.picture("host")
    browser.click("//button[starts-with(@aria-label, 'Disable 0000:85')]")
    browser.shows("‖ disabled")
    tick("a device is disabled by a button")
    browser.driver.switch_to.window(floor)
    browser.until("the floor does not show it", lambda: "disabled" in browser.text("#sums .legend"))
    same = browser.driver.execute_script("return window.unchanged")
    tick("the open floor shows the disabled device", same and browser.has("16 disabled"), browser.text("#sums"))
    browser.picture("floor")
    browser.driver.close()
    browser.driver.switch_to.window(browser.driver.window_handles[0])
    browser.click("//button[starts-with(@aria-label, 'Enable 0000:85')]")
    browser.until("it is still disabled", lambda: not browser.has("‖ disabled"))
    tick("and enabled again")

    browser.click("//summary[starts-with(., 'Drain')]")
    browser.press("Drain this host")
    browser.shows("Drain in progress")
    tick("a drain keeps its page's address", browser.driver.current_url.endswith(f"/hosts/{host}"),
         browser.driver.current_url)
    browser.picture("drain")
    tick("an open drain has no errors", not (severe := browser.severe()), "; ".join(severe))
    browser.block("*/drain")
    browser.until("no round fails", browser.severe)
    browser.block()
    browser.shows("The host is empty.")
    tick("a drain goes on after a round without an answer")
    at = lane.run("server", "show", "-f", "value", "-c", "OS-EXT-SRV-ATTR:host", "gpu-one").out.strip()
    tick("a drain moves the host's servers while its page is open", at not in ("", host), f"{host} to {at}")
    browser.press("Enable this host")
    browser.until("not enabled", lambda: "up" in browser.text("#host-head"))
    tick("the host is enabled again")
    browser.press("Capacity")
    browser.shows("3 of 3 compute hosts are up and enabled.")
    tick("the capacity of each flavor is on a page", "tiny-vgpu" in browser.text("main"))
    lane.run("server", "delete", "--wait", "floor-two")
    tick("the operators' pages have no errors", not browser.severe(), "; ".join(browser.severe()))


def member(lane, browser):
    """A member of a project has no pages of operators."""
    lane.run("project", "create", "red")
    lane.run("user", "create", "--password", "a secret", "ann")
    lane.run("role", "add", "--project", "red", "--user", "ann", "member")
    browser.open("/dashboard/login")
    browser.fill(user="ann", password="a secret")
    browser.driver.find_element("css selector", "#password").submit()
    browser.shows("This project has no servers yet.")
    links = browser.text("header nav")
    browser.open("/dashboard/floor")
    browser.shows("Not allowed")
    lane.tick("a member has no floor", "Floor" not in links and not browser.has("gpu1"), links)


def other_screens(lane, browser):
    """The same pages on other screens, and without script."""
    page = "/dashboard/servers"
    host = lane.run("server", "show", "-f", "value", "-c", "OS-EXT-SRV-ATTR:host", "gpu-one").out.strip()
    operators = {"floor": "/dashboard/floor", "small": "/dashboard/floor?size=small&group=model",
                 "host": f"/dashboard/hosts/{host}", "capacity": "/dashboard/capacity",
                 "enrolment": "/dashboard/enrolment"}
    for name, width, dark in [("wide", 1400, False), ("dark", 1400, True), ("narrow", 360, False),
                              ("narrow-dark", 360, True)]:
        browser.emulate(width, 900, dark)
        for what, at in operators.items():
            browser.open(at)
            browser.shows("Kilonova")
            wide = browser.driver.execute_script("return document.documentElement.scrollWidth")
            found = browser.findings()
            lane.tick(f"the page {what} fits {width} px, {'dark' if dark else 'light'}", wide <= width and not found,
                      f"{wide} px, {found}")
            browser.picture(f"{what}-{name}")
    for name, width, dark in [("dark", 1200, True), ("narrow", 360, False), ("narrow-dark", 360, True)]:
        browser.emulate(width, 800, dark)
        for at in [page, "/dashboard/launch"]:
            browser.open(at)
            browser.shows("Kilonova")
            wide = browser.driver.execute_script("return document.documentElement.scrollWidth")
            lane.tick(f"{at} fits {width} px, {'dark' if dark else 'light'}", wide <= width, f"{wide} px")
            browser.picture(f"{at.rsplit('/', 1)[1]}-{name}")
        browser.open(page)
        browser.press("gpu-one")
        browser.shows("Overview")
        wide = browser.driver.execute_script("return document.documentElement.scrollWidth")
        lane.tick(f"a server's page fits {width} px", wide <= width, f"{wide} px")
        browser.picture(f"server-{name}")
    browser.emulate(1200, 900, False)
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.open(page)
    browser.click("//section[@id='list']//a")
    lane.tick("pages can be read without script", "Timeline" in browser.text("#server"))
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    browser.open(page)
    browser.press("Log out")
    browser.shows("You are logged out.")
    browser.open(page)
    browser.shows("Password")
    lane.tick("after the logout the pages ask for a login")


def main():
    parser = options_of(__doc__, "examples/nodes/tour.toml")
    parser.add_argument("--pictures", help="folder for screenshots (PNG)")
    parser.add_argument("--axe", help="the file axe.min.js of axe-core, to examine pages with")
    options = parsed(parser)
    programs = selenium(parser)
    if options.pictures:
        os.makedirs(options.pictures, exist_ok=True)

    def story(serve, clients, folder):
        lane, browser = Lane(clients), None
        profile = tempfile.mkdtemp(prefix="kilonova-chromium-")
        try:
            command = serve.command
            serve.command = lambda: [*command(), "--dev"]
            serve.start()
            parts = urllib.parse.urlsplit(serve.url)
            browser = Pages(programs, profile, f"{parts.scheme}://{parts.netloc}", options.pictures,
                            options.axe)
            look(serve, lane, browser)
            operate(lane, browser)
            other_screens(lane, browser)
            member(lane, browser)
        finally:
            if browser:
                browser.driver.quit()
            shutil.rmtree(profile, ignore_errors=True)

    return tell("dashboard in Chromium", options, story)


if __name__ == "__main__":
    sys.exit(main())
