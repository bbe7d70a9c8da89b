"""A headless Firefox, by its own remote protocol Marionette: no driver is needed besides the browser.

A message is its length, a colon and JSON: `[0, number, command, arguments]`, and `[1, number, error, result]` as the
answer. The commands are those of WebDriver. Firefox chooses its port and writes it into the profile. Everything but
loopback goes to a proxy that does not exist.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

from stack import Wrong

# How long a page may take on a busy machine, in seconds.
PATIENCE = 60
PREFERENCES = {
    "marionette.port": 0,
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.proxy.type": 1,
    "network.proxy.http": "127.0.0.1",
    "network.proxy.http_port": 9,
    "network.proxy.ssl": "127.0.0.1",
    "network.proxy.ssl_port": 9,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
}
# The key of an element in WebDriver's JSON.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# The browser's log of pages: errors of scripts, and violations of a page's policy.
ERRORS = """
const wanted = one => one instanceof Ci.nsIScriptError && one.sourceName.startsWith(arguments[0])
    && (one.category.includes("CSP") || !(one.flags & Ci.nsIScriptError.warningFlag));
return Services.console.getMessageArray().filter(wanted).map(one => `${one.sourceName}: ${one.errorMessage}`);
"""


def program():
    """The Firefox of this machine; None without one."""
    return shutil.which("firefox-esr") or shutil.which("firefox")


class Firefox:
    """A headless Firefox with a separate profile."""

    def __init__(self, firefox):
        self.folder = tempfile.mkdtemp(prefix="kilonova-firefox-")
        with open(os.path.join(self.folder, "user.js"), "w", encoding="utf-8") as file:
            for name, value in PREFERENCES.items():
                file.write(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n")
        command = [firefox, "--headless", "--no-remote", "--marionette", "--remote-allow-system-access", "--profile",
                   self.folder, "about:blank"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        self.number, self.peer, self.answers = 0, None, None
        try:
            self.peer = socket.create_connection(("127.0.0.1", self.port()), PATIENCE)
            self.answers = self.peer.makefile("rb")
            self.receive()
            self.call("WebDriver:NewSession")
        except BaseException:
            self.quit()
            raise

    def port(self):
        """The port that Firefox has chosen."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with open(os.path.join(self.folder, "MarionetteActivePort"), encoding="utf-8") as file:
                    return int(file.read())
            except (FileNotFoundError, ValueError):
                time.sleep(0.05)
        raise Wrong("Firefox does not listen")

    def receive(self):
        """The next message."""
        length = b""
        while (digit := self.answers.read(1)) != b":":
            if not digit:
                raise Wrong("Firefox has closed its connection")
            length += digit
        return json.loads(self.answers.read(int(length)))

    def call(self, command, **arguments):
        """The result of a command."""
        self.number += 1
        message = json.dumps([0, self.number, command, arguments]).encode()
        self.peer.sendall(b"%d:%s" % (len(message), message))
        _, number, error, result = self.receive()
        if number != self.number or error:
            raise Wrong(f"{command}: {error}")
        return result.get("value", result) if isinstance(result, dict) else result

    def run(self, script, *arguments):
        """The result of a script in the page."""
        return self.call("WebDriver:ExecuteScript", script=script, args=list(arguments))

    def open(self, url):
        """Loads a page."""
        self.call("WebDriver:Navigate", url=url)

    def element(self, css):
        """The id of the first element that a selector names, once it is there."""
        def found():
            ids = self.call("WebDriver:FindElements", using="css selector", value=css)
            return ids and ids[0][ELEMENT]
        return self.until(f"no {css}", found)

    def send(self, css, text):
        """Types into an element; the path of a file into its field."""
        self.call("WebDriver:ElementSendKeys", id=self.element(css), text=text)

    def text(self, css="main"):
        """The text of an element; empty without one, and while a page is loaded."""
        return self.run("return document.querySelector(arguments[0])?.innerText", css) or ""

    def until(self, what, wanted):
        """Waits until `wanted()` is true and returns it."""
        deadline = time.monotonic() + PATIENCE
        while not (found := wanted()):
            if time.monotonic() > deadline:
                raise Wrong(f"{what}: the page says {self.text('body')[:600]!r}")
            time.sleep(0.1)
        return found

    def shows(self, text):
        """Waits until the page shows a text."""
        return self.until(f"no {text!r}", lambda: text in self.text("body"))

    def errors(self, base):
        """Firefox's log of the pages below a URL."""
        self.call("Marionette:SetContext", value="chrome")
        try:
            return self.run(ERRORS, base)
        finally:
            self.call("Marionette:SetContext", value="content")

    def quit(self):
        """Ends the browser."""
        try:
            if self.answers:
                self.call("Marionette:Quit", flags=["eForceQuit"])
                self.process.wait(20)
        except (Wrong, OSError, subprocess.TimeoutExpired):
            pass
        finally:
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
