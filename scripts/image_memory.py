#!/usr/bin/env python3
"""The memory of a controller while a large image passes through it.

    scripts/image_memory.py [--s3 URL] [--size MIB] [--kilonova PROGRAM]

Uploads an image, downloads it and compares its bytes, with the file store or with a bucket of the S3 server. Prints the
time, the controller's CPU time and its greatest resident memory, and exits with 1 if that exceeds the memory before the
transfer by more than the bound of docs/images.md. The default size is 1024 MiB.
"""

import hashlib
import http.client
import json
import os
import sys
import threading
import time
import urllib.parse

from cli import Lane
from frame import options_of, parsed, tell
from image_controllers import configuration

# Two parts of 10 MiB, two buffers of 256 KiB, and what sockets, threads and the allocator keep.
BOUND = 64
BLOCK = 1024 * 1024


class Watch:
    """The CPU time and the memory of a process."""

    def __init__(self, pid):
        self.pid, self.peak, self.over = pid, 0, threading.Event()
        threading.Thread(target=self.sample, daemon=True).start()

    def resident(self):
        """Resident memory in MiB."""
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) // 1024

    def seconds(self):
        """CPU time of user and system."""
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sample(self):
        """Samples the memory ten times a second and keeps the maximum."""
        while not self.over.wait(0.1):
            self.peak = max(self.peak, self.resident())


class Blocks:
    """The bytes of the image, and their hash."""

    def __init__(self, size):
        self.block, self.left, self.hash = os.urandom(BLOCK), size, hashlib.sha512()

    def __iter__(self):
        for _ in range(self.left):
            self.hash.update(self.block)
            yield self.block


def measured(lane, watch, what, size, work):
    """Runs a transfer and checks its memory."""
    before, cpu, begun = watch.resident(), watch.seconds(), time.monotonic()
    watch.peak = before
    work()
    took, used = time.monotonic() - begun, watch.seconds() - cpu
    watch.peak = max(watch.peak, watch.resident())
    lane.say(f"{what} of {size} MiB: {took:.1f} s, {used:.1f} s of CPU, {before} MiB resident before, "
             f"{watch.peak} MiB at most")
    lane.tick(f"the {what} needs at most {BOUND} MiB", watch.peak - before <= BOUND, f"{watch.peak - before} MiB")


def story_of(options):
    """The steps on a running controller."""

    def story(serve, clients, folder):
        if options.s3:
            serve.config = configuration(folder, options.s3)
        serve.start()
        lane = Lane(clients)
        api = serve.api()
        api.login(serve.openrc())

        def ask(method, path, body=None, **headers):
            connection = http.client.HTTPConnection(urllib.parse.urlsplit(serve.url).netloc, timeout=600)
            connection.request(method, f"/image/v2/images{path}", body=body,
                               headers={"X-Auth-Token": api.token, **headers})
            return connection.getresponse()

        image = json.dumps({"name": "large", "disk_format": "raw", "container_format": "bare"})
        path = f"/{json.loads(ask('POST', '', image, **{'Content-Type': 'application/json'}).read())['id']}"
        blocks, received = Blocks(options.size), hashlib.sha512()
        watch = Watch(serve.process.pid)

        def upload():
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(options.size * BLOCK)}
            status = ask("PUT", f"{path}/file", iter(blocks), **headers).status
            lane.tick("the image is stored", status == 204, str(status))

        def download():
            answer = ask("GET", f"{path}/file")
            while chunk := answer.read(BLOCK):
                received.update(chunk)

        measured(lane, watch, "upload", options.size, upload)
        measured(lane, watch, "download", options.size, download)
        watch.over.set()
        lane.tick("the downloaded bytes are the same", received.digest() == blocks.hash.digest())
        lane.tick("the image is deleted", ask("DELETE", path).status == 204)

    return story


def main():
    parser = options_of(__doc__)
    parser.add_argument("--s3", help="URL of an S3 server that accepts the key `key` of the id `id` (default: the file store)")
    parser.add_argument("--size", type=int, default=1024, help="MiB of the image")
    options = parsed(parser)
    return tell("image memory", options, story_of(options))


if __name__ == "__main__":
    sys.exit(main())
