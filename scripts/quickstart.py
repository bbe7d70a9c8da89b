#!/usr/bin/env python3
"""Runs the commands of README.md and docs/quickstart.md exactly as written there.

    scripts/quickstart.py [--kilonova PROGRAM] [--counts FILE]

Bash runs the blocks that follow `<!-- run: server -->` or `<!-- run: client -->`. Each page has its own folder, which
links to everything in the repository, so that the files the commands create stay there. The server's block keeps
running; each line of the client's blocks must succeed, and their output is checked. `make run` uses the program that
KILONOVA names instead of building one, and a free port; `kilonova` in the client's blocks is that program.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from stack import Wrong, free_port

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Each page with the words that its commands must print.
PAGES = {
    "README.md": ("ACTIVE", "Bound", " is empty: ", "40 VGPU free for one server"),
    "docs/quickstart.md": ("| status ", "ACTIVE", "Bound"),
}
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```bash\n(.*?)```", re.DOTALL)
# Makes the shell stop at the first command that fails.
BEGIN = "set -e -o pipefail\n"


def blocks(page):
    """The page's blocks: server or client, and the text."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        found = BLOCK.findall(file.read())
    if [side for side, _ in found].count("server") != 1 or len(found) < 4:
        raise Wrong(f"{page} lacks blocks to run: {found}")
    return found


def start(text, folder, env):
    """Starts the server's block. Returns once it has printed the commands to type next."""
    out = os.path.join(folder, "server.out")
    with open(out, "wb") as file:
        process = subprocess.Popen(["bash", "-c", BEGIN + text], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                                   stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + 60
    while True:
        with open(out, encoding="utf-8", errors="replace") as file:
            output = file.read()
        if "openstack server show vm1\n" in output:
            return process, output
        if process.poll() is not None or time.monotonic() > deadline:
            raise Wrong(f"`{text.strip()}` is not ready:\n{output[-2000:]}")
        time.sleep(0.05)


def run(page, folder, kilonova):
    """Runs the page. Returns the number of commands and checks."""
    for name in os.listdir(ROOT):
        if name not in (".git", "state"):
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    env = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    env.update(KILONOVA=kilonova, LISTEN=f"127.0.0.1:{free_port()}", PYTHONWARNINGS="ignore", LC_ALL="C.UTF-8",
               PATH=f"{os.path.dirname(kilonova)}:{os.environ['PATH']}")
    found = blocks(page)
    server = next(text for side, text in found if side == "server")
    clients = "".join(text for side, text in found if side == "client")
    process, output = start(server, folder, env)
    print(f"$ {server}{output[output.index('kilonova: ready'):]}", flush=True)
    try:
        # The quickstart contains the three commands that the server prints at its start.
        checks = 0
        for line in output[output.index("kilonova: ready"):].splitlines()[1:4] if "quickstart" in page else ():
            if line.strip() not in clients:
                raise Wrong(f"the start prints `{line.strip()}`, which is not in {page}")
            checks += 1
        done = subprocess.run(["bash", "-v", "-c", BEGIN + clients], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        print(done.stdout, flush=True)
        if done.returncode:
            raise Wrong(f"a command of {page} ended with status {done.returncode}")
        for expected in PAGES[page]:
            if expected not in done.stdout:
                raise Wrong(f"the commands did not print {expected!r}")
            checks += 1
        return checks + len([line for line in clients.splitlines() if line.strip()])
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--counts", help="file to write `passed failed` to")
    options = parser.parse_args()
    passed, failed = 0, 0
    for page in PAGES:
        folder = tempfile.mkdtemp(prefix="kilonova-quickstart-")
        try:
            checks = run(page, folder, os.path.abspath(options.kilonova))
            passed += checks
            print(f"{page}: {checks} commands and checks passed")
            shutil.rmtree(folder)
        except (Wrong, OSError, ValueError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"  ✗ {page}: {type(error).__name__}: {error}\n{page}: failed; its folder is {folder}")
    if options.counts:
        with open(options.counts, "w", encoding="utf-8") as file:
            file.write(f"{passed} {failed}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
