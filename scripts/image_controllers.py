#!/usr/bin/env python3
"""Image data between two controllers, by the stock client.

    scripts/image_controllers.py --s3 URL --database URL [--kilonova PROGRAM] [--verbose]

Starts two `kilonova serve` processes with one PostgreSQL database and one bucket, each with a state directory of its
own. The second one gets the sealing key of the first one and nothing else. An image that one receives is read, booted
and deleted through the other, and so is a snapshot. Exits with 1 at the first check that fails.
"""

import json
import os
import shutil
import sys

from cli import Clients, Lane
from frame import options_of, parsed, tell
from stack import Serve

# More than a part of a multipart upload.
SIZE = 23 * 1024 * 1024 + 5


def configuration(folder, url):
    """A configuration file whose image data is in the bucket."""
    path, key = os.path.join(folder, "kilonova.conf"), os.path.join(folder, "s3.key")
    with open(key, "w", encoding="utf-8") as file:
        file.write("key\n")
    lines = ["[glance_store]", "stores = file,s3", "default_backend = s3", f"s3_store_host = {url}",
             f"s3_store_bucket = images-{os.getpid()}", "s3_store_access_key = id",
             f"s3_store_secret_key_file = {key}", "s3_store_create_bucket_on_put = true", ""]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    return path


def beside(first, folder):
    """A second controller, which gets the sealing key and nothing else of the first one's state."""
    state = os.path.join(folder, "second", "state")
    os.makedirs(state, mode=0o700)
    key = os.path.join(state, "seal.key")
    shutil.copyfile(os.path.join(first.state, "seal.key"), key)
    os.chmod(key, 0o600)
    second = Serve(first.binary, state, None, first.database, first.config)
    second.start()
    return second


def clouds_of(first, second, folder):
    """The client's file for the second controller: the first one's with another port."""
    with open(first.clouds, encoding="utf-8") as file:
        text = file.read()
    path = os.path.join(folder, "second", "clouds.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(f":{first.url.rsplit(':', 1)[1]}", f":{second.port}"))
    os.chmod(path, 0o600)
    return path


def saved(lane, folder, image):
    """The bytes of an image as `image save` writes them."""
    path = os.path.join(folder, "saved")
    lane.run("image", "save", "--file", path, image)
    with open(path, "rb") as file:
        return file.read()


def field(lane, name, *arguments):
    """One field of a command's answer."""
    return json.loads(lane.run(*arguments, "-f", "json").out)[name]


def steps(lanes, folder, states):
    """Uploads, downloads, boots and snapshots through both controllers."""
    one, two = lanes
    data = bytes(n % 251 for n in range(1024)) * (SIZE // 1024) + b"tail."
    path = os.path.join(folder, "data")
    with open(path, "wb") as file:
        file.write(data)
    one.run("image", "create", "--file", path, "--disk-format", "raw", "uploaded")
    two.tick("the other controller has the same bytes", saved(two, folder, "uploaded") == data)
    for state in states:
        kept = [name for name in os.listdir(os.path.join(state, "images")) if name != ".cloud"]
        one.tick("no file of a controller has image data", not kept, str(kept))
    one.run("flavor", "create", "--ram", "64", "--vcpus", "1", "--disk", "1", "small")
    two.run("server", "create", "--flavor", "small", "--image", "uploaded", "--nic", "none", "--wait", "vm")
    two.run("server", "image", "create", "--name", "snapshot", "--wait", "vm")
    snapshot = saved(one, folder, "snapshot")
    one.tick("the snapshot is the disk", len(snapshot) > 0 and saved(two, folder, "snapshot") == snapshot)
    one.run("server", "create", "--flavor", "small", "--image", "snapshot", "--nic", "none", "--wait", "copy")
    two.tick("the server from the snapshot is active", field(two, "status", "server", "show", "copy") == "ACTIVE")
    one.run("server", "delete", "--wait", "vm", "copy")
    two.run("image", "delete", "uploaded", "snapshot")
    one.run("image", "show", "uploaded", fails=True)


def main():
    parser = options_of(__doc__, nodes="examples/nodes/demo.toml")
    parser.add_argument("--s3", required=True, help="URL of an S3 server that accepts the key `key` of the id `id`")
    options = parsed(parser)

    def story(serve, clients, folder):
        serve.config = configuration(folder, options.s3)
        serve.start()
        second = beside(serve, folder)
        try:
            others = Clients(clients.program, clouds_of(serve, second, folder), clients.brief)
            lanes = Lane(clients), Lane(others)
            steps(lanes, folder, (serve.state, second.state))
            clients.commands += others.commands
            clients.checks += others.checks
        finally:
            second.away()

    return tell("image controllers", options, story)


if __name__ == "__main__":
    sys.exit(main())
