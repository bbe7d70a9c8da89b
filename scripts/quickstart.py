#!/usr/bin/env python3
"""The commands of docs/quickstart.md, run exactly as they are written there.

    scripts/quickstart.py [--kilonova PROGRAM] [--counts FILE]

The page's blocks that follow `<!-- run: server -->` or `<!-- run: client -->` are run by bash, in a folder that
has all of the repository in it by links, so that what they make lies there. The server's block is left running;
each line of the clients' blocks has to succeed, and what they leave is checked. `make run` takes the program that
KILONOVA names instead of building one, and a free port.
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
PAGE = os.path.join(ROOT, "docs/quickstart.md")
BLOCK = re.compile(r"<!-- run: (\w+) -->\n```bash\n(.*?)```", re.DOTALL)
# What the shell adds to a block: it stops at the first command that fails, and says which it runs.
BEGIN = "set -e -o pipefail\n"


def blocks():
    """The page's blocks: whose they are, and their text."""
    with open(PAGE, encoding="utf-8") as file:
        found = BLOCK.findall(file.read())
    if [whose for whose, _ in found].count("server") != 1 or len(found) < 4:
        raise Wrong(f"{PAGE} has not the blocks that it should have: {found}")
    return found


def start(text, folder, env):
    """Runs the server's block until the last of the commands that it ends with."""
    out = os.path.join(folder, "server.out")
    with open(out, "wb") as file:
        process = subprocess.Popen(["bash", "-c", BEGIN + text], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                                   stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + 60
    while True:
        with open(out, encoding="utf-8", errors="replace") as file:
            said = file.read()
        if "openstack server show vm1\n" in said:
            return process, said
        if process.poll() is not None or time.monotonic() > deadline:
            raise Wrong(f"`{text.strip()}` is not ready:\n{said[-2000:]}")
        time.sleep(0.05)


def run(folder, kilonova):
    """The page; how many commands were run and checks made."""
    for name in os.listdir(ROOT):
        if name not in (".git", "state"):
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    env = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    env.update(KILONOVA=kilonova, LISTEN=f"127.0.0.1:{free_port()}", PYTHONWARNINGS="ignore", LC_ALL="C.UTF-8")
    page = blocks()
    server = next(text for whose, text in page if whose == "server")
    clients = "".join(text for whose, text in page if whose == "client")
    process, said = start(server, folder, env)
    print(f"$ {server}{said[said.index('kilonova: ready'):]}", flush=True)
    try:
        # The three commands that the start ends with are on the page.
        checks = 0
        for line in said[said.index("kilonova: ready"):].splitlines()[1:4]:
            if line.strip() not in clients:
                raise Wrong(f"the start says `{line.strip()}`, and the page does not")
            checks += 1
        done = subprocess.run(["bash", "-v", "-c", BEGIN + clients], cwd=folder, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        print(done.stdout, flush=True)
        if done.returncode:
            raise Wrong(f"a command of the page failed with {done.returncode}")
        # vm1, vm2 and vm3 were ACTIVE: --wait ends with 1 otherwise, and the table says so.
        for wanted in ("| status ", "ACTIVE", "Bound"):
            if wanted not in done.stdout:
                raise Wrong(f"{wanted!r} is nowhere in what the commands printed")
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
    folder = tempfile.mkdtemp(prefix="kilonova-quickstart-")
    passed, failed = 0, 1
    try:
        passed, failed = run(folder, os.path.abspath(options.kilonova)), 0
        print(f"quickstart: {passed} commands and checks, all as they should be")
        shutil.rmtree(folder)
    except (Wrong, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"  ✗ {type(error).__name__}: {error}\nquickstart: failed; what it left is in {folder}")
    if options.counts:
        with open(options.counts, "w", encoding="utf-8") as file:
            file.write(f"{passed} {failed}\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
