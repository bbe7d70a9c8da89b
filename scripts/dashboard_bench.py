#!/usr/bin/env python3
"""Measures the dashboard in a headless Chromium, against a `kilonova serve` with many simulated hosts and servers.

    scripts/dashboard_bench.py [--kilonova PROGRAM] [--nodes FILE] [--servers N] [--database URL]

Prints the time until the floor is complete and the CPU time of the server for it, both when it is read as a whole and
from the page that a controller caches for ten seconds; the frames per second while the floor is scrolled; the times of
list pages of servers; and the share of a core that 100 open lists of two users cost while 50 servers change per second.
Nothing is asserted, because the figures include the machine's load. The simulated hosts run in a process of their own:
each inspects itself once a minute, and their inspections, which coincide, would count as the server's.
"""

import os
import re
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.parse
import urllib.request

from cli import Lane
from console_browser import selenium
from dashboard_browser import Pages
from frame import options_of, parsed, tell
from stack import Wrong, session

COMPUTE = "/compute/v2.1"
AT_ONCE = 100
PATIENCE = 300      # seconds
RATE = 50           # changes of servers per second
FORGOTTEN = 12      # seconds after which a controller rereads the whole floor
TIMES = 5           # floors read as a whole
IDLE = 30           # seconds over which the idle server is measured
SCROLL = """
    const done = arguments[arguments.length - 1], begun = performance.now();
    let frames = 0;
    const step = () => {
        window.scrollBy(0, 40);
        frames += 1;
        const passed = performance.now() - begun;
        if (passed < 4000) requestAnimationFrame(step); else done(frames * 1000 / passed);
    };
    requestAnimationFrame(step);
"""


def cpu(process):
    """The CPU seconds that a process has used."""
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settle(process):
    """Waits until the server is idle."""
    before, deadline = cpu(process), time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(2)
        now = cpu(process)
        if now - before < 0.2:
            return
        before = now
    raise Wrong(f"the server is not idle after {PATIENCE} s: measure a release build on a quiet machine")


def say(what, value, unit):
    """One line of the table."""
    print(f"  {what:<62}{value:>10} {unit}", flush=True)


def wait_for_hosts(api, topology):
    """Waits until each host of the topology has registered."""
    with open(topology, "rb") as file:
        count = sum(host.get("count", 1) for host in tomllib.load(file)["host"])
    path, version = f"{COMPUTE}/os-hypervisors/statistics", {"OpenStack-API-Version": "compute 2.56"}
    deadline = time.monotonic() + PATIENCE
    while (there := api.expect(200, "GET", path, headers=version)["hypervisor_statistics"]["count"]) < count:
        if time.monotonic() > deadline:
            raise Wrong(f"{there} of {count} hosts have registered after {PATIENCE} s")
        time.sleep(0.5)


def fill(api, project, count):
    """Boots servers with vGPUs."""
    limits = {"instances": -1, "cores": -1, "ram": -1}
    api.expect(200, "PUT", f"{COMPUTE}/os-quota-sets/{project}", {"quota_set": limits},
               {"OpenStack-API-Version": "compute 2.56"})
    image = api.expect(200, "GET", "/image/v2/images")["images"][0]["id"]
    flavor = api.expect(200, "POST", f"{COMPUTE}/flavors",
                        {"flavor": {"name": "vgpu", "vcpus": 1, "ram": 64, "disk": 1}})["flavor"]["id"]
    api.expect(200, "POST", f"{COMPUTE}/flavors/{flavor}/os-extra_specs", {"extra_specs": {"resources:VGPU": "1"}})
    for begin in range(0, count, AT_ONCE):
        some = min(AT_ONCE, count - begin)
        server = {"name": f"s{begin}", "imageRef": image, "flavorRef": flavor, "networks": "none",
                  "min_count": some, "max_count": some}
        api.expect(202, "POST", f"{COMPUTE}/servers", {"server": server})
    def some(status):
        return api.expect(200, "GET", f"{COMPUTE}/servers?status={status}&limit=1")["servers"]

    deadline = time.monotonic() + PATIENCE
    while some("BUILD"):
        if time.monotonic() > deadline:
            raise Wrong(f"servers are still being built after {PATIENCE} s")
        time.sleep(0.5)
    if failed := some("ERROR"):
        raise Wrong(f"server {failed[0]['id']} is in ERROR")


def frames(browser):
    """Frames per second while the page scrolls."""
    return browser.driver.execute_async_script(SCROLL)


def idle_share(process, seconds=10):
    """The share of a core that the idle server uses; its simulated hosts poll."""
    before = cpu(process)
    time.sleep(seconds)
    return (cpu(process) - before) / seconds


def floor(serve, browser):
    """The floor."""
    process, whole = serve.process, []
    idle = idle_share(process, IDLE)
    say("CPU of the idle server in a second", f"{idle * 1000:.0f}", "ms")
    for how in ["read as a whole", "from the cached page"] * TIMES:
        if how == "read as a whole":
            browser.open("/dashboard/quotas")
            time.sleep(FORGOTTEN)
            settle(process)
        before, begun = cpu(process), time.monotonic()
        browser.open("/dashboard/floor")
        took = time.monotonic() - begun
        timing = browser.driver.execute_script(
            "const [one] = performance.getEntriesByType('navigation');"
            "return [one.responseStart, one.responseEnd, one.domComplete, one.transferSize]")
        cards = browser.driver.execute_script("return document.querySelectorAll('.host').length")
        time.sleep(1.5)
        used = cpu(process) - before - idle * (time.monotonic() - begun)
        say(f"floor {how}: {cards} hosts, complete after", f"{timing[2]:.0f}", "ms")
        say("  first byte, last byte", f"{timing[0]:.0f}, {timing[1]:.0f}", "ms")
        say("  page", f"{timing[3] / 1000:.0f}", "kB")
        say("  CPU of the server for it, its stream included", f"{used * 1000:.0f}", "ms")
        if how == "read as a whole":
            whole.append(used * 1000)
        say("  seen by the driver", f"{took * 1000:.0f}", "ms")
    say("CPU of a floor read as a whole, median", f"{statistics.median(whole):.0f}", "ms")
    say("  the first, and the most of the others", f"{whole[0]:.0f}, {max(whole[1:]):.0f}", "ms")
    say("frames while it scrolls", f"{frames(browser):.0f}", "/s")


def lists(serve, browser):
    """Pages of the list of servers."""
    cookies = "; ".join(f"{one['name']}={one['value']}" for one in browser.driver.get_cookies())
    api = serve.api()

    def read(path):
        begun = time.monotonic()
        status, _, text = api.ask("GET", path, headers={"Cookie": cookies, "Accept": "text/html"})
        assert status == 200, (path, status)
        return (time.monotonic() - begun) * 1000, text

    for what, path in [("first page of servers", "/dashboard/servers"),
                       ("of all projects", "/dashboard/servers?all=1"),
                       ("with a filter by name", "/dashboard/servers?name=s99"),
                       ("with a filter by state", "/dashboard/servers?status=ERROR")]:
        times = sorted(read(path)[0] for _ in range(15))
        say(what, f"{statistics.median(times):.0f}, {times[-1]:.0f}", "ms (median, most)")
    path, times = "/dashboard/servers", []
    for _ in range(30):
        took, text = read(path)
        times.append(took)
        more = re.search(r'href="(/dashboard/servers\?[^"]*marker=[^"]*)"', text)
        if not more:
            break
        path = more.group(1).replace("&amp;", "&")
    say(f"{len(times)} pages, one after the other", f"{statistics.median(times):.0f}, {max(times):.0f}", "ms (median, most)")


def opened(base, cookies, stream):
    """A stream of an open list, as a socket."""
    host = urllib.parse.urlsplit(base).netloc
    sock = socket.create_connection(host.split(":"), 30)
    head = f"GET {stream} HTTP/1.1\r\nHost: {host}\r\nCookie: {cookies}\r\nAccept: text/event-stream\r\n\r\n"
    sock.sendall(head.encode())
    return sock


def drain(socks, over, told):
    """Reads streams until `over` is set, and counts their bytes."""
    with selectors.DefaultSelector() as all_of_them:
        for sock in socks:
            all_of_them.register(sock, selectors.EVENT_READ)
        while not over.is_set():
            for key, _ in all_of_them.select(0.2):
                told.append(len(key.fileobj.recv(1 << 18)))


def change(api, ids, seconds):
    """Renames servers at an even rate."""
    begun = time.monotonic()
    for number in range(RATE * seconds):
        api.expect(200, "PUT", f"{COMPUTE}/servers/{ids[number % len(ids)]}", {"server": {"name": f"n{number}"}})
        time.sleep(max(0.0, begun + (number + 1) / RATE - time.monotonic()))
    return time.monotonic() - begun


def watched(serve, api, base):
    """Open pages while servers change."""
    ids = [one["id"] for one in api.expect(200, "GET", f"{COMPUTE}/servers?limit=50")["servers"]]
    domain = {"domain_id": "default"}
    user = api.expect(201, "POST", "/identity/v3/users", {"user": {"name": "watcher", "password": "watcher", **domain}})
    project = next(one["id"] for one in api.expect(200, "GET", "/identity/v3/projects")["projects"] if one["name"] == "admin")
    role = next(one["id"] for one in api.expect(200, "GET", "/identity/v3/roles")["roles"] if one["name"] == "reader")
    api.expect(204, "PUT", f"/identity/v3/projects/{project}/users/{user['user']['id']}/roles/{role}")
    socks, told, over = [], [], threading.Event()
    shares = []
    for pages in (0, 100):
        if pages:
            for name, password in (("admin", serve.openrc()["OS_PASSWORD"]), ("watcher", "watcher")):
                cookies = session(base, name, password)
                asked = urllib.request.Request(f"{base}/dashboard/servers", headers={"Cookie": cookies, "Accept": "text/html"})
                with urllib.request.urlopen(asked) as page:
                    stream = re.search(r'sse-connect="([^"]*)"', page.read().decode()).group(1).replace("&amp;", "&")
                socks += [opened(base, cookies, stream) for _ in range(pages // 2)]
            threading.Thread(target=drain, args=(socks, over, told), daemon=True).start()
        settle(serve.process)
        before = cpu(serve.process)
        took = change(api, ids, 20)
        shares.append((cpu(serve.process) - before) / took)
        say(f"CPU of the server with {pages} open lists and {RATE * 20 / took:.0f} changes per second", f"{100 * shares[-1]:.1f}",
            "% of a core")
    over.set()
    if sum(told) < 100_000:
        raise Wrong(f"the open lists received too little: {sum(told)} bytes")
    say("  the open lists alone", f"{100 * (shares[1] - shares[0]):.1f}", "% of a core")
    say("  sent to them", f"{sum(told) / 1e6:.1f}", "MB")


def main():
    parser = options_of(__doc__, "examples/nodes/bench.toml")
    parser.add_argument("--servers", type=int, default=10000)
    options = parsed(parser)
    programs = selenium(parser)

    def story(serve, clients, folder):
        browser, hosts, profile = None, None, tempfile.mkdtemp(prefix="kilonova-chromium-")
        try:
            command, topology, serve.nodes = serve.command, serve.nodes, None
            serve.command = lambda: [*command(), "--dev"]
            serve.start(timeout=180)
            api = serve.api()
            project = api.login(serve.openrc())["project"]["id"]
            hosts = subprocess.Popen(
                [serve.binary, "node", "--control", serve.url, "--nodes", topology,
                 "--token-file", os.path.join(serve.state, "node.token"), "--state-dir", os.path.join(folder, "hosts")],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_for_hosts(api, topology)
            begun = time.monotonic()
            fill(api, project, options.servers)
            say(f"{options.servers} servers booted in", f"{time.monotonic() - begun:.0f}", "s")
            parts = urllib.parse.urlsplit(serve.url)
            browser = Pages(programs, profile, f"{parts.scheme}://{parts.netloc}", None)
            browser.emulate(1400, 900, False)
            browser.open("/")
            browser.fill(user="admin", password=serve.openrc()["OS_PASSWORD"])
            browser.driver.find_element("css selector", "#password").submit()
            browser.shows("Servers")
            settle(serve.process)
            floor(serve, browser)
            lists(serve, browser)
            watched(serve, api, f"{parts.scheme}://{parts.netloc}")
            Lane(clients).tick("the dashboard was measured")
        finally:
            if browser:
                browser.driver.quit()
            if hosts:
                hosts.kill()
                hosts.wait()
            shutil.rmtree(profile, ignore_errors=True)

    return tell("dashboard figures", options, story)


if __name__ == "__main__":
    sys.exit(main())
