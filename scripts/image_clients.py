#!/usr/bin/env python3
"""Runs the image commands of the stock clients (openstackclient and glanceclient) against `kilonova serve`.

    scripts/image_clients.py [--kilonova PROGRAM] [--database URL] [--verbose]

Creates, uploads, lists, changes, shares, deactivates, downloads and deletes images. glanceclient validates
every image against the schema and parses errors in its own way: both are checked. Exits with 1 at the first
check that fails.
"""

import json
import os
import pty
import subprocess
import sys

from cli import Lane
from frame import options_of, parsed, tell


class Glance:
    """The program `glance` with the admin's credentials."""

    def __init__(self, lane, program):
        self.lane, self.program = lane, program
        shown = json.loads(lane.run("configuration", "show", "--unmask", "-f", "json").out)
        auth = {key.split(".", 1)[1]: value for key, value in shown.items() if key.startswith("auth.")}
        kept = {key: value for key, value in os.environ.items() if not key.startswith("OS_")}
        self.env = {**kept, "PYTHONWARNINGS": "ignore",
                    **{f"OS_{key.upper()}": value for key, value in auth.items()}}

    def call(self, *arguments):
        """Runs a command. Returns its exit code and all its output."""
        with self.lane.clients.lock:
            self.lane.clients.commands += 1
        self.lane.say(f"$ glance {' '.join(arguments)}")
        # The program treats any standard input except a terminal as an image's data.
        terminal, stdin = pty.openpty()
        try:
            done = subprocess.run([self.program, *arguments], env=self.env, stdin=stdin,
                                  capture_output=True, text=True, timeout=120, check=False)
        finally:
            os.close(terminal)
            os.close(stdin)
        return done.returncode, done.stdout + done.stderr

    def well(self, *arguments, says=""):
        """Runs a command that must succeed; `says` must be in its output."""
        code, text = self.call(*arguments)
        self.lane.tick(f"glance {arguments[0]}", code == 0 and says in text, f"exit code {code}: {text[-600:]}")
        return text

    def refused(self, *arguments, says):
        """Runs a command that must be refused; `says` is the expected message."""
        code, text = self.call(*arguments)
        self.lane.tick(f"glance {arguments[0]}: {says}", code != 0 and says in text,
                       f"exit code {code}: {text[-600:]}")


def step_openstack(lane, folder):
    """openstackclient: from creation to deletion."""
    lane.say("\n== openstack image")
    path = os.path.join(folder, "data")
    with open(path, "wb") as file:
        file.write(b"some bytes" * 1000)
    lane.run("image", "create", "--file", path, "--disk-format", "raw", "--property", "hw_a=b", "one")
    image = json.loads(lane.run("image", "show", "one", "-f", "json").out)
    lane.tick("the image is active", (image["status"], image["size"]) == ("active", 10000), str(image))
    lane.run("image", "set", "--property", "c=d", "--tag", "t", "--min-disk", "1", "--shared", "one")
    lane.run("image", "unset", "--property", "c", "--tag", "t", "one")
    project = json.loads(lane.run("project", "create", "other", "-f", "json").out)["id"]
    lane.run("image", "add", "project", "one", project)
    members = json.loads(lane.run("image", "member", "list", "one", "-f", "json").out)
    lane.tick("shared", [member["Member ID"] for member in members] == [project], str(members))
    lane.run("image", "remove", "project", "one", project)
    lane.run("image", "set", "--deactivate", "one")
    lane.run("image", "set", "--activate", "one")
    lane.run("image", "save", "--file", path + ".back", "one")
    with open(path + ".back", "rb") as file:
        lane.tick("the downloaded bytes are the same", file.read() == b"some bytes" * 1000)
    lane.run("image", "show", "", fails=True)
    answer = lane.run("image", "show", "nonsense", fails=True)
    lane.tick("an unknown image is reported", "No Image found for nonsense" in answer.err, answer.err)
    lane.run("image", "task", "list")
    lane.run("image", "metadef", "namespace", "list")
    lane.run("image", "delete", "one")


def step_glance(lane, folder, program):
    """glanceclient: it validates images against the schema and parses errors from HTML."""
    lane.say("\n== glance")
    glance = Glance(lane, program)
    path = os.path.join(folder, "data")
    bare = glance.well("image-create", "--name", "bare", says="queued")
    bare = next(line.split("|")[2].strip() for line in bare.splitlines() if line.startswith("| id "))
    glance.well("image-show", bare, says="queued")
    glance.well("image-list", says="bare")
    made = glance.well("image-create", "--name", "full", "--disk-format", "raw", "--container-format", "bare",
                       "--file", path, "--property", "k=v", says="active")
    made = next(line.split("|")[2].strip() for line in made.splitlines() if line.startswith("| id "))
    glance.well("image-update", made, "--property", "k=w", "--name", "named", says="named")
    glance.well("image-update", made, "--remove-property", "k")
    glance.well("image-tag-update", made, "t")
    glance.well("image-tag-delete", made, "t")
    glance.well("member-create", made, "someone", says="pending")
    glance.well("member-list", "--image-id", made, says="someone")
    glance.well("member-delete", made, "someone")
    glance.well("image-deactivate", made)
    glance.well("image-reactivate", made)
    glance.well("image-download", made, "--file", path + ".glance")
    glance.well("task-list")
    glance.well("md-namespace-list")
    glance.well("md-resource-type-list")
    glance.well("import-info")
    unknown = "11111111-2222-4333-8444-555555555555"
    glance.refused("image-show", unknown, says=f"No image found with ID {unknown}")
    glance.refused("stores-info", says="Multi Backend support is not enabled")
    glance.well("image-delete", made, bare)
    glance.refused("image-delete", made, says="No image with an ID of")


def story_of(serve, clients, folder):
    """Runs all steps."""
    serve.start()
    lane = Lane(clients)
    step_openstack(lane, folder)
    step_glance(lane, folder, os.path.join(os.path.dirname(clients.program), "glance"))


def main():
    return tell("image clients", parsed(options_of(__doc__)), story_of)


if __name__ == "__main__":
    sys.exit(main())
