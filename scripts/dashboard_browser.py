#!/usr/bin/env python3
"""Uses the dashboard in a headless Chromium, as a user does, against a real `kilonova serve --dev`.

    scripts/dashboard_browser.py [--kilonova PROGRAM] [--database URL] [--pictures FOLDER] [--axe FILE] [--verbose]

Logs in, launches a vGPU server and sees it become active without a reload, reads why another request does not fit,
operates and changes a server, and opens its console. Then, as an operator, watches the floor, disables a device, drains
a host and reads the capacity. Then creates a key, an image by upload, a network and a security group, reads further
explanations, and deletes two servers together. Then visits the same pages without script, on a narrow screen, in dark
mode, and as a member, who has no floor, and takes a server through its life with the keyboard alone. Names are long,
foreign and hostile; two tabs share a session. Chromium's log must have no errors: a violation of the page's policy
would be one. `--pictures` saves a screenshot of every page, `--axe` (the file axe.min.js of the package axe-core)
examines the pages. Nothing but loopback is resolved or reached.
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.parse

from cli import Lane
from console_browser import Browser, selenium
from frame import options_of, parsed, tell
from stack import Wrong


class Pages(Browser):
    """Chromium with the dashboard."""

    def __init__(self, programs, folder, base, pictures, axe=None):
        super().__init__(*programs, folder)
        self.base, self.pictures = base, pictures
        self.axe = axe and open(axe, encoding="utf-8").read()

    def status(self):
        """The address and the beginning of the page without its header, for a message."""
        text = "return location.pathname + ': ' + (document.querySelector('main') ?? document.body).innerText"
        return self.driver.execute_script(text)[:600]

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
        address = self.driver.current_url

        def clicked():
            try:
                found = self.driver.find_elements("xpath", path)
                if found:
                    found[0].click()
                return bool(found)
            except StaleElementReferenceException:
                # The driver may report this for a link whose click has already loaded the next page.
                return self.driver.current_url != address
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
        """Saves a screenshot of the whole page."""
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

    def fits(self, lane, what, width, dark, name):
        """Ticks if this page is no wider than the screen and has no serious finding of axe, and saves its picture."""
        self.shows("Kilonova")
        wide = self.driver.execute_script("return document.documentElement.scrollWidth")
        found = self.findings()
        lane.tick(f"the page {what} fits {width} px, {'dark' if dark else 'light'}", wide <= width and not found,
                  f"{wide} px, {found}")
        self.picture(name)

    def focused(self):
        """The text of the element that has the focus, and what is wrong with its focus indicator."""
        return self.driver.execute_script("""
            const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect()
            const words = (one.labels?.[0]?.innerText || one.innerText || one.getAttribute('aria-label') || one.id || '')
            const wrong = []
            if (one !== document.body) {
                if (style.outlineStyle === 'none' || parseFloat(style.outlineWidth) === 0) wrong.push('no outline')
                if (box.bottom <= 0 || box.top >= innerHeight || box.right <= 0 || box.left >= innerWidth) wrong.push('out of sight')
            }
            return [words.replace(/\\s+/g, ' ').trim(), wrong.join(', ')]""")

    def keys(self, *keys):
        """Presses keys, which the element with the focus receives."""
        from selenium.webdriver.common.action_chains import ActionChains
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, words, most=80):
        """Presses Tab until an element with this text has the focus, which must be visible at every step."""
        from selenium.webdriver.common.keys import Keys
        way = []
        for _ in range(most):
            self.keys(Keys.TAB)
            label, wrong = self.focused()
            way.append(label[:30])
            if wrong:
                raise Wrong(f"{self.status()[:80]}: the focus at {label!r}: {wrong}")
            if label == words:
                return
        raise Wrong(f"{self.status()[:80]}: Tab does not reach {words!r}: {way}")

    def emulate(self, width, height, dark):
        """Changes the size and the colour scheme of the screen."""
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def block(self, *urls):
        """Makes requests for these addresses fail; without addresses, none."""
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": list(urls)})

    def delay(self, milliseconds):
        """Delays every answer by this time."""
        self.driver.execute_cdp_cmd("Network.enable", {})
        self.driver.execute_cdp_cmd("Network.emulateNetworkConditions", {
            "offline": False, "latency": milliseconds, "downloadThroughput": -1, "uploadThroughput": -1})

    def severe(self):
        """The errors of Chromium's log, except those of answers that a check expects."""
        return [line["message"] for line in self.driver.get_log("browser")
                if line["level"] == "SEVERE" and not re.search("status of 4(0|13)|Status Error Code 40", line["message"])]


def look(serve, lane, browser):
    """The main journey of a user."""
    password = serve.openrc()["OS_PASSWORD"]
    tick = lane.tick
    browser.emulate(1200, 900, False)
    browser.open("/")
    browser.shows("Log in")
    tick("a browser is redirected from the root to the login", "/dashboard/login" in browser.driver.current_url)
    browser.picture("login")
    browser.fill(user="admin", password="wrong")
    browser.driver.find_element("css selector", "#password").submit()
    browser.shows("is wrong")
    tick("a wrong password is refused on the page")
    browser.fill(password=password)
    browser.driver.find_element("css selector", "#password").submit()
    browser.shows("This project has no servers yet.")
    tick("the password from the state directory is accepted")

    browser.press("Launch")
    browser.fill(name="gpu-one")
    browser.flavor("tiny-vgpu")
    browser.until("no count of capacity", lambda: browser.has("fit now, on") or browser.has("fits now, on"))
    tick("the form says how many fit", True, browser.text("#room"))
    browser.fill(count="99")
    browser.find("#name").click()
    browser.shows("Not that many fit now.")
    tick("it warns before a request that does not fit")
    browser.picture("launch")
    browser.fill(count="1")
    # The list is open in this tab while the client creates the server.
    browser.find("#name").click()
    browser.until("no room", lambda: not browser.has("Not that many fit now."))
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
    tick("a deleted server disappears from the open list")
    late_lists(lane, browser)
    lane.run("server", "create", "--flavor", "tiny", "--image", "hello", "--network", "private", "--wait", "three")
    browser.press("three")
    browser.shows("Overview")
    lane.run("server", "delete", "--wait", "three")
    browser.shows("Not found")
    tick("the open page of a server shows that another client has deleted it")

    browser.open("/dashboard/servers")
    browser.press("gpu-one")
    browser.press("Start")
    browser.until("not active", lambda: "active" in browser.text("#server .head"))
    tick("a button starts it")
    browser.press("Shut off…")
    browser.shows("the contents of its memory are lost")
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
    browser.press("gpu-one")
    change(lane, browser)
    browser.press("Create image…")
    browser.fill(name="a-copy")
    browser.press("Create image")
    browser.shows("Overview")
    browser.until("no image", lambda: lane.run("image", "list", "--name", "a-copy", "-f", "value", "-c", "Status").out.strip() == "active")
    browser.open("/dashboard/images")
    browser.press("a-copy")
    browser.shows("Minimum disk")
    tick("a snapshot is an image on its page", "active" in browser.text("#image .head"))
    browser.press("Delete…")
    browser.press("Delete")
    browser.until("the image is still there", lambda: browser.has("hello") and not browser.has("a-copy"))

    flavor = ("flavor", "create", "--vcpus", "1", "--ram", "64", "--disk", "0")
    lane.run(*flavor, "--property", "resources:VGPU=40", "greedy")
    browser.open("/dashboard/launch")
    browser.flavor("greedy")
    browser.shows("It does not fit now.")
    tick("the condition that prevents a request is named", "VGPU" in browser.text("#room"),
         browser.text("#room"))
    browser.fill(name="greedy")
    browser.driver.find_element("css selector", "#launch .primary").click()
    browser.shows("Why it failed")
    tick("a failed launch shows the reason", "VGPU" in browser.text("#server"))
    browser.picture("failed")
    browser.click("//summary[.='About these actions']")
    tick("each action is explained", "Deletes the server" in browser.text("#server"))
    browser.press("Delete…")
    browser.shows("devices are released")
    browser.press("Delete")
    browser.until("it is still there", lambda: browser.has("gpu-one") and not browser.has("greedy"))
    tick("a server is deleted after a confirmation")
    errors = browser.severe()
    tick("the pages have no errors", not errors, "; ".join(errors))


def change(lane, browser):
    """Changes a server from its page, which stays the open page."""
    tick = lane.tick
    browser.press("Rename…")
    browser.fill(name="gpu-first", description="the first one")
    browser.press("Rename")
    browser.until("no new name", lambda: "gpu-first" in browser.text("#server .head"))
    tick("a server is renamed", "the first one" in browser.text("#server"))
    browser.press("Edit metadata…")
    browser.fill(metadata="role=trainer")
    browser.picture("metadata")
    browser.press("Edit metadata")
    browser.until("no metadata", lambda: "role=trainer" in browser.text("#server"))
    browser.press("Edit metadata…")
    lane.run("server", "set", "--property", "owner=ml", "gpu-first")
    browser.driver.execute_script("document.querySelector('#metadata').value += '\\nsite=a'")
    browser.press("Edit metadata")
    browser.shows("changed since this form was opened")
    tick("a change of another client is not overwritten", browser.has("owner=ml"))
    browser.driver.execute_script("document.querySelector('#metadata').value += '\\nowner=ml'")
    browser.press("Edit metadata")
    browser.until("not both", lambda: {"owner=ml", "site=a"} <= set(browser.text("#server").split()))
    browser.press("Edit tags…")
    browser.fill(tags="gpu, team a")
    browser.press("Edit tags")
    browser.until("no tags", lambda: "gpu, team a" in browser.text("#server"))
    tick("its metadata and tags are edited")
    ports = "return document.querySelectorAll('[aria-labelledby=ports] tbody tr').length"
    browser.press("Attach port…")
    browser.shows("A new port on the network private")
    browser.press("Attach port")
    browser.until("no second port", lambda: browser.driver.execute_script(ports) == 2)
    browser.until("it is still in progress", lambda: not lane.run(
        "server", "show", "gpu-first", "-f", "value", "-c", "OS-EXT-STS:task_state").out.strip().strip("None"))
    browser.press("Detach port…")
    browser.shows("The guest loses this network interface")
    browser.picture("detach-port")
    browser.press("Detach port")
    browser.until("still two ports", lambda: browser.driver.execute_script(ports) == 1)
    tick("a port is attached and detached")
    browser.press("Create backup…")
    browser.shows("Older ones are deleted.")
    browser.fill(name="nightly", keep="1")
    browser.press("Create backup")
    browser.shows("Overview")
    browser.until("no backup", lambda: lane.run("image", "list", "--name", "nightly", "-f", "value", "-c", "Status").out.strip() == "active")
    tick("a backup is an image")
    lane.run("image", "delete", "nightly")
    tick("without a Cinder there is no volume to attach", not browser.has("Attach volume"))
    lane.run("server", "set", "--name", "gpu-one", "gpu-first")
    browser.until("not the first name", lambda: "gpu-one" in browser.text("#server .head"))


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
    browser.picture("drain")
    tick("an open drain has no errors", not (severe := browser.severe()), "; ".join(severe))
    browser.open("/dashboard/login")
    left = time.monotonic()
    while (at := lane.run("server", "show", "-f", "value", "-c", "OS-EXT-SRV-ATTR:host", "gpu-one").out.strip()) in ("", host):
        if time.monotonic() - left > 60:
            break
    tick("a drain goes on after its page is closed", at not in ("", host), f"{host} to {at}")
    browser.open(f"/dashboard/hosts/{host}")
    browser.shows("The host is empty.")
    tick("and its page shows the progress when it is opened again", browser.has("servers have left the host"))
    browser.press("Enable this host")
    browser.until("not enabled", lambda: "up" in browser.text("#host-head"))
    tick("the host is enabled again")
    browser.press("Capacity")
    browser.shows("3 of 3 compute hosts are up and enabled.")
    tick("the capacity of each flavor is on a page", "tiny-vgpu" in browser.text("main"))
    lane.run("server", "delete", "--wait", "floor-two")
    tick("the operators' pages have no errors", not browser.severe(), "; ".join(browser.severe()))


def explain(lane, browser):
    """A server, a search and the cloud are explained; servers are operated together."""
    tick = lane.tick
    browser.emulate(1200, 900, False)
    lane.run("server", "create", "--flavor", "tiny", "--image", "hello", "--network", "private", "--wait", "--min", "2",
             "--max", "2", "pair")
    browser.open("/dashboard/explain")
    browser.fill(server="pair-1")
    browser.click("//section[@aria-labelledby='of-server']//button")
    browser.press("pair-1")
    browser.shows("Claims")
    tick("a server is explained", browser.has("MEMORY_MB"))
    browser.picture("explain-server")
    browser.open("/dashboard/explain")
    browser.fill(query="resources=VGPU:99")
    browser.click("//section[@aria-labelledby='of-query']//button")
    browser.shows("The nearest host is")
    tick("a search is explained", browser.has("Excluded"))
    browser.picture("explain-query")
    browser.press("Doctor")
    browser.shows("Examined")
    tick("the doctor has examined the cloud", browser.has("ledger"), browser.text("section"))
    browser.picture("doctor")

    browser.open("/dashboard/servers")
    browser.driver.execute_script("window.unchanged = true")
    box = "//tr[contains(., 'pair-1')]//input[@type='checkbox']"
    browser.click(box)
    lane.run("server", "pause", "pair-1")
    browser.until("not paused", lambda: "paused" in browser.text("#list"))
    kept = browser.driver.find_element("xpath", box).is_selected()
    tick("a chosen server stays chosen when its row changes",
         kept and browser.driver.execute_script("return window.unchanged"))
    browser.click("//tr[contains(., 'pair-2')]//input[@type='checkbox']")
    browser.picture("chosen")
    browser.press("Delete…")
    browser.shows("Delete: 2 servers")
    browser.picture("bulk")
    browser.press("Delete")
    browser.until("no results", lambda: browser.text("main").count("✓ requested") == 2)
    tick("chosen servers are deleted, each with its result")
    browser.picture("results")
    browser.open("/dashboard/servers")
    browser.until("they are still there", lambda: not browser.has("pair-"))
    tick("these pages have no errors", not (severe := browser.severe()), "; ".join(severe))
    for width, dark in [(1200, True), (360, False)]:
        browser.emulate(width, 900, dark)
        for at in ("servers", "explain", "doctor"):
            browser.open(f"/dashboard/{at}")
            browser.fits(lane, at, width, dark, f"{at}-list-{width}")
    browser.emulate(1200, 900, False)


def resources(lane, browser, folder):
    """A project's resources: a key pair, whose private key is shown once, an image upload, a network, a group."""
    tick = lane.tick
    browser.emulate(1200, 900, False)
    browser.open("/dashboard/keys")
    browser.press("New key pair")
    browser.fill(name="mine")
    browser.press("Create")
    browser.shows("shown only once")
    name = browser.find("a[download]").get_attribute("download")
    tick("a private key is shown once, with a download", browser.has("BEGIN OPENSSH PRIVATE KEY") and name == "mine.pem", name)
    browser.picture("key")
    browser.open("/dashboard/key?name=mine")
    tick("and not again", browser.has("ssh-ed25519") and not browser.has("PRIVATE KEY"))

    disk = os.path.join(folder, "disk.raw")
    with open(disk, "wb") as file:
        file.write(os.urandom(1 << 20) * 40)
    with open(disk, "rb") as file:
        sum_ = hashlib.file_digest(file, "sha256").hexdigest()
    browser.open("/dashboard/images")
    browser.press("New image")
    browser.fill(name="uploaded")
    browser.driver.execute_script("document.getElementById('disk_format').value = 'raw'")
    browser.press("Create")
    browser.shows("has no data yet")
    browser.picture("image-empty")
    seen = """window.seen = []; window.unchanged = true;
        document.addEventListener('htmx:xhr:progress', () => window.seen.push(document.getElementById('upload-progress')?.value))"""
    huge = os.path.join(folder, "huge.raw")
    with open(huge, "wb") as file:
        file.truncate((1 << 40) + 1)
    browser.find("#file").send_keys(huge)
    browser.driver.find_element("css selector", "#upload .primary").click()
    browser.shows("An image may have at most")
    tick("a file that is too large is refused before it is sent", browser.has("without data"))
    browser.driver.execute_script(seen)
    browser.find("#file").send_keys(disk)
    browser.fill(sum="0" * 64)
    browser.driver.find_element("css selector", "#upload .primary").click()
    browser.shows("does not have this checksum")
    tick("a file with another checksum is refused on its page", browser.has("without data"))
    browser.find("#file").send_keys(disk)
    browser.fill(sum=sum_)
    browser.driver.find_element("css selector", "#upload .primary").click()
    browser.until("not active", lambda: "active" in browser.text("#image .head"))
    values = [one for one in browser.driver.execute_script("return window.seen") if one]
    tick("an upload shows its progress", len(set(values)) > 1 and max(values) > 99, f"{len(set(values))} steps")
    shown = lane.run("image", "show", "-f", "value", "-c", "checksum", "uploaded").out.strip()
    tick("and the page has the image's checksum", bool(shown) and browser.has(shown) and browser.has("40.0 MiB"))
    browser.picture("image")
    size = os.path.getsize(disk)
    kept = os.path.join(folder, "kept.raw")
    lane.run("image", "save", "--file", kept, "uploaded")
    with open(kept, "rb") as file:
        tick("the client reads the file that was uploaded",
             hashlib.file_digest(file, "sha256").hexdigest() == sum_, f"{size} bytes")

    browser.open("/dashboard/networks")
    browser.press("New network")
    browser.fill(name="lab")
    browser.press("Create")
    browser.shows("No subnets")
    browser.click("//summary[.='Add a subnet']")
    browser.fill(cidr="198.51.100.0/24")
    browser.press("Add a subnet")
    browser.shows("198.51.100.1")
    browser.click("//summary[.='Add a port']")
    browser.fill(port_name="spare")
    browser.press("Add a port")
    # The DHCP port has an address of the subnet before.
    browser.shows("spare")
    tick("a network gets a subnet and a port")
    browser.picture("network")
    browser.open("/dashboard/security-groups")
    browser.press("New security group")
    browser.fill(name="web")
    browser.press("Create")
    browser.shows("from the server")
    browser.click("//summary[.='Add a rule']")
    browser.fill(ports="80", remote="192.0.2.0/24")
    browser.press("Add a rule")
    browser.shows("192.0.2.0/24")
    browser.picture("group")
    browser.click("//button[starts-with(@aria-label, 'Remove to the server tcp 80')]")
    browser.until("the rule is there", lambda: not browser.has("192.0.2.0/24"))
    tick("a security group gets a rule and loses it")
    browser.open("/dashboard/device-profiles")
    browser.press("New device profile")
    browser.fill(name="one-vgpu", groups="resources:VGPU=1")
    browser.press("Create")
    browser.shows("accel:device_profile=one-vgpu")
    tick("a device profile is created")
    for at in ("images", "networks", "security-groups", "keys", "device-profiles", "quotas"):
        browser.open(f"/dashboard/{at}")
        browser.shows("Kilonova")
    tick("the pages of the project have no errors", not (severe := browser.severe()), "; ".join(severe))
    for width, dark in [(1200, True), (360, False)]:
        browser.emulate(width, 900, dark)
        for at in ("images", "new/image", "networks", "security-groups", "keys", "new/key", "device-profiles",
                   "new/device-profile", "quotas"):
            browser.open(f"/dashboard/{at}")
            browser.fits(lane, at, width, dark, f"{at.replace('/', '-')}-{width}")
    for kind, name in [("image", "uploaded"), ("network", "lab"), ("security group", "web")]:
        if kind == "network":
            lane.run("port", "delete", "spare")
        lane.run(*kind.split(), "delete", name)
    browser.emulate(1200, 900, False)


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


def late_lists(lane, browser):
    """The open list becomes correct, although its page can read it only slowly or not at all while a server boots."""
    made = ("server", "create", "--flavor", "tiny", "--image", "hello", "--network", "private", "--wait")

    def shows(name, state):
        rows = "return [...document.querySelectorAll('#list tbody tr')].map(row => row.innerText)"
        return any(name in row and state in row for row in browser.driver.execute_script(rows))

    browser.severe()
    # The answer with the new server arrives after the event of its shutdown.
    browser.delay(6000)
    lane.run(*made, "unhurried")
    lane.run("server", "stop", "unhurried")
    browser.until("the slow list is not right", lambda: shows("unhurried", "shut off"))
    browser.delay(0)
    errors = browser.severe()
    lane.tick("a list that is read slowly shows the newest state", not errors, "; ".join(errors))
    browser.block("*/dashboard/servers?*")
    lane.run(*made, "unread")
    browser.shows("The connection to the server is interrupted")
    browser.block()
    browser.until("the list is not read again", lambda: shows("unread", "active"))
    browser.until("the notice stays", lambda: not browser.has("The connection to the server is interrupted"))
    # The failed requests themselves are in the log.
    errors = [line for line in browser.severe() if "NoTarget" in line]
    lane.tick("a list that could not be read is read again", not errors, "; ".join(errors))
    lane.run("server", "delete", "--wait", "unhurried", "unread")
    browser.until("they are still there", lambda: not shows("unhurried", "") and not shows("unread", ""))


def sessions(lane, browser):
    """Two tabs of one browser: one changes the project and ends the session; the other's forms are refused."""
    tick, tab = lane.tick, browser.driver.switch_to
    lane.run("project", "create", "blue")
    lane.run("user", "create", "--password", "a secret", "bea")
    for project in ("red", "blue"):
        lane.run("role", "add", "--project", project, "--user", "bea", "member")

    def log_in(project):
        browser.shows("Password")
        browser.fill(user="bea", password="a secret")
        browser.click("//summary[starts-with(., 'Project')]")
        browser.fill(project=project)
        browser.driver.find_element("css selector", "#password").submit()

    def use(project):
        browser.open("/dashboard/projects")
        browser.click(f"//button[@aria-label='Use {project}']")
        browser.shows("This project has no servers yet.")

    browser.open("/dashboard/servers")
    browser.press("Log out")
    browser.open("/dashboard/servers")
    log_in("red")
    browser.shows("This project has no servers yet.")
    first = browser.driver.current_window_handle
    tab.new_window("tab")
    second = browser.driver.current_window_handle
    use("blue")
    tab.window(first)
    browser.open("/dashboard/launch")
    browser.shows("Launch servers")
    browser.fill(name="astray")
    browser.flavor("tiny")
    tab.window(second)
    use("red")
    tab.window(first)
    browser.driver.find_element("css selector", "#launch .primary").click()
    browser.shows("does not belong to your session")
    tick("a form of one project is refused in another", not lane.run("server", "list", "--all-projects", "--name", "astray",
                                                                     "-f", "value").out.strip())

    browser.open("/dashboard/launch")
    browser.shows("Launch servers")
    tab.window(second)
    browser.open("/dashboard/servers")
    browser.press("Log out")
    browser.shows("You are logged out.")
    browser.driver.close()
    tab.window(first)
    browser.flavor("tiny-vgpu")
    browser.shows("Password")
    tick("a part of a page that is read without a session leads to the login", "login" in browser.driver.current_url,
         browser.driver.current_url)
    log_in("red")
    browser.shows("Launch servers")
    tick("and the login leads back to the page", browser.driver.current_url.endswith("/dashboard/launch"))
    errors = browser.severe()
    tick("two tabs have no errors", not errors, "; ".join(errors))


def odd_names(lane, browser):
    """Names are text, however long, in any script, and whatever they look like."""
    names = ["W" * 255, "خادم الرسومات ١", "🚀 GPU 🚀", "<img src=x onerror=alert(1)>&\"'"]
    made = ("server", "create", "--flavor", "tiny", "--image", "hello", "--network", "private", "--wait", "-f", "value",
            "-c", "id")
    ids = [lane.run(*made, name).out.split()[-1] for name in names]
    for width, dark in [(360, False), (1200, True)]:
        browser.emulate(width, 800, dark)
        browser.open("/dashboard/servers")
        browser.until("not all names", lambda: all(browser.has(name) for name in names))
        browser.fits(lane, "of odd names", width, dark, f"odd-names-{width}")
        for number, (id_, name) in enumerate(zip(ids, names)):
            browser.open(f"/dashboard/servers/{id_}")
            browser.shows(name)
            browser.fits(lane, f"of the server {name[:12]}", width, dark, f"odd-{number}-{width}")
            browser.open(f"/dashboard/servers/{id_}/actions/delete")
            browser.shows(name)
            browser.fits(lane, f"that deletes {name[:12]}", width, dark, f"odd-delete-{number}-{width}")
    browser.emulate(1200, 900, False)
    lane.run("server", "delete", "--wait", *ids)
    errors = browser.severe()
    lane.tick("odd names cause no errors", not errors, "; ".join(errors))


def keyboard(serve, lane, browser):
    """A server from its launch to its shutdown with Tab, Enter, Space and arrows alone."""
    from selenium.webdriver.common.keys import Keys
    browser.emulate(1200, 900, False)
    browser.open("/dashboard/servers")
    browser.press("Log out")
    browser.shows("You are logged out.")
    browser.open("/dashboard/login")
    browser.shows("User name")
    # The field of the name has the focus already.
    browser.until("no field has the focus", lambda: browser.focused()[0] == "User name")
    browser.keys("admin")
    browser.tab_to("Password")
    browser.keys(serve.openrc()["OS_PASSWORD"], Keys.ENTER)
    browser.shows("Servers")
    browser.keys(Keys.TAB)
    lane.tick("the first stop of Tab leads to the content of the page", browser.focused()[0] == "Skip to the content",
              str(browser.focused()))
    browser.keys(Keys.ENTER)
    browser.tab_to("Launch")
    browser.keys(Keys.ENTER)
    browser.shows("Launch servers")
    browser.tab_to("Name")
    browser.keys("by-keys")
    browser.keys(Keys.TAB, Keys.TAB)
    flavor = browser.driver.execute_script("return document.activeElement.name")
    # Tab stops at one choice of a group, and arrows move between the choices.
    for _ in range(20):
        if browser.focused()[0].startswith("tiny "):
            break
        browser.keys(Keys.ARROW_DOWN)
    browser.keys(Keys.SPACE)
    chosen = browser.driver.execute_script("return document.activeElement.checked")
    lane.tick("arrows choose among the flavors", flavor == "flavor" and chosen and browser.focused()[0].startswith("tiny "),
              str((flavor, browser.focused())))
    browser.tab_to("Launch")
    browser.keys(Keys.ENTER)
    browser.shows("Overview")
    browser.until("not active", lambda: "active" in browser.text("#server .head"))
    browser.tab_to("Servers")
    browser.keys(Keys.ENTER)
    browser.shows("by-keys")
    browser.tab_to("by-keys")
    browser.keys(Keys.ENTER)
    browser.shows("Overview")
    browser.tab_to("Lock")
    lane.run("server", "set", "--property", "seen=1", "by-keys")
    browser.until("no metadata", lambda: "seen=1" in browser.text("#server"))
    lane.tick("a change of the open page leaves the focus where it is", browser.focused()[0] == "Lock",
              str(browser.focused()))
    browser.keys(Keys.SPACE)
    browser.until("not locked", lambda: "locked" in browser.text("#server .head"))
    browser.tab_to("Shut off…")
    browser.keys(Keys.ENTER)
    browser.shows("the contents of its memory are lost")
    browser.tab_to("Shut off")
    browser.keys(Keys.ENTER)
    browser.until("not shut off", lambda: "shut off" in browser.text("#server .head"))
    browser.tab_to("Log out")
    browser.keys(Keys.SPACE)
    browser.shows("You are logged out.")
    lane.tick("a server is launched, opened, locked and shut off, and its user logged out, by the keyboard alone")
    errors = browser.severe()
    lane.tick("the pages have no errors", not errors, "; ".join(errors))


def navigation(lane, browser):
    """The link to the open page is visible on a narrow screen, with script and without."""
    hidden = """
        const box = (one) => one.getBoundingClientRect(), line = document.querySelector('.bar nav')
        return [...line.children].filter(one => box(one).left < box(line).left || box(one).right > box(line).right)
            .map(one => one.innerText)"""
    browser.emulate(360, 800, False)
    for at, label in [("servers", "Servers"), ("floor", "Floor"), ("doctor", "Doctor")]:
        browser.open(f"/dashboard/{at}")
        browser.until("the page is not complete", lambda: browser.driver.execute_script("return document.readyState") == "complete")
        out = browser.driver.execute_script(hidden)
        top = browser.driver.execute_script("return [scrollX, scrollY]")
        lane.tick(f"the link to the open page {label} is visible on a narrow screen",
                  browser.text(".bar nav [aria-current]") == label and label not in out and len(out) > 3 and top == [0, 0],
                  f"out of sight: {out}, scrolled {top}")
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.open("/dashboard/doctor")
    out = browser.driver.execute_script(hidden)
    wide = browser.driver.execute_script("return document.documentElement.scrollWidth")
    lane.tick("without script all links to pages are visible", not out and wide <= 360, f"out of sight: {out}, {wide} px")
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def other_screens(lane, browser):
    """The same pages on other screens, and without script."""
    def plotted():
        # The first sample is taken a minute after the start. The link alone would not load the page a second time.
        browser.open("/dashboard/capacity")
        browser.press("Last month")
        return "VGPU" in browser.text(".plots")
    browser.until("no plots", plotted)
    lane.tick("the usage of each resource class is plotted", browser.text("main nav [aria-current]") == "Last month",
              browser.text(".plots").replace("\n", " "))
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
            browser.fits(lane, what, width, dark, f"{what}-{name}")
    for name, width, dark in [("dark", 1200, True), ("narrow", 360, False), ("narrow-dark", 360, True)]:
        browser.emulate(width, 800, dark)
        for at in [page, "/dashboard/launch"]:
            browser.open(at)
            what = at.rsplit("/", 1)[1]
            browser.fits(lane, what, width, dark, f"{what}-{name}")
        browser.open(page)
        browser.press("gpu-one")
        browser.shows("Overview")
        browser.fits(lane, "server", width, dark, f"server-{name}")
    navigation(lane, browser)
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
            resources(lane, browser, folder)
            explain(lane, browser)
            odd_names(lane, browser)
            other_screens(lane, browser)
            member(lane, browser)
            sessions(lane, browser)
            keyboard(serve, lane, browser)
        finally:
            if browser:
                browser.driver.quit()
            shutil.rmtree(profile, ignore_errors=True)

    return tell("dashboard in Chromium", options, story)


if __name__ == "__main__":
    sys.exit(main())
