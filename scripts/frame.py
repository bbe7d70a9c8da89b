"""The framework of the scripts that run the stock clients against a real `kilonova serve`.

Adds the options that these scripts share, gives each a folder that is removed on success, stops the
server, counts, and prints the result. The script decides what to run and check.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import time

from cli import Clients
from front import serve_by
from stack import Gone, Wrong, end_tidily

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The exceptions that a failed story raises.
ENDS = (Wrong, Gone, OSError, KeyError, ValueError, IndexError, StopIteration, subprocess.TimeoutExpired)


def options_of(text, nodes=None, brief=True):
    """The parser with the shared options; `brief`: whether tables are printed only with `--verbose`."""
    parser = argparse.ArgumentParser(description=text.splitlines()[0])
    parser.add_argument("--kilonova", default=os.path.join(ROOT, "target/release/kilonova"))
    parser.add_argument("--openstack", default=os.path.join(ROOT, ".venv/bin/openstack"))
    if nodes:
        parser.add_argument("--nodes", default=os.path.join(ROOT, nodes))
    parser.add_argument("--database", help="PostgreSQL URL (default: SQLite)")
    if brief:
        parser.add_argument("--verbose", dest="brief", action="store_false", help="also print each command's output")
    else:
        parser.add_argument("--brief", action="store_true", help="print commands and ticks, no tables")
    add_ways(parser)
    parser.add_argument("--counts", help="file to write `passed failed` to")
    return parser


def add_ways(parser):
    """Adds `--tls` and `--haproxy`."""
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--tls", dest="way", action="store_const", const="tls", default="plain",
                      help="give the services a certificate of their own")
    ways.add_argument("--haproxy", dest="way", action="store_const", const="haproxy",
                      help="put haproxy, which terminates TLS, in front of the services")


def parsed(parser, advice="`make test` builds or installs it"):
    """The options, after checking that the programs they name exist."""
    options = parser.parse_args()
    for program in (options.kilonova, options.openstack):
        if not os.path.exists(program):
            parser.error(f"{program} does not exist; {advice}")
    return options


def tell(what, options, story, port=0):
    """Runs `story(serve, clients, folder)`, which starts the server. Returns the exit code. Port 0: a new one each start."""
    end_tidily()
    begun = time.monotonic()
    folder = tempfile.mkdtemp(prefix=f"kilonova-{what.split()[0]}-")
    state = os.path.join(folder, "state")
    os.mkdir(state, mode=0o700)
    serve = serve_by(options.way, folder, os.path.abspath(options.kilonova), state, getattr(options, "nodes", None),
                     options.database, port=port)
    clients = Clients(os.path.abspath(options.openstack), serve.clouds, options.brief)
    if options.way != "plain":
        what = f"{what} {'over TLS' if options.way == 'tls' else 'behind haproxy'}"
    failed = 1
    try:
        story(serve, clients, folder)
        failed = 0
        print(f"\n{what}: {clients.commands} commands of the stock clients, {clients.checks} checks, all "
              f"passed, in {time.monotonic() - begun:.0f} s")
    except ENDS as error:
        print(f"  ✗ {type(error).__name__}: {error}", flush=True)
        if serve.starts:
            print(f"\nthe end of kilonova's log ({serve.log}):\n{serve.tail()}")
    finally:
        serve.away()
        if options.counts:
            with open(options.counts, "w", encoding="utf-8") as file:
                file.write(f"{max(0, clients.checks - failed)} {failed}\n")
    if failed:
        print(f"{what}: failed; its files are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0
