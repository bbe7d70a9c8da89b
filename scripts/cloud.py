#!/usr/bin/env python3
"""Runs Kilonova in Nova's place beside a real Keystone and a real Glance, and checks the images that it leaves there.

    scripts/cloud.py [--kilonova PROGRAM] [--counts FILE]

cloud_stage.py says how the environment names the cloud.
"""

import hashlib
import os
import sqlite3
import subprocess
import sys
import time

from cloud_stage import Wrong, call, check, expect, main, play, until


def boot(cloud, kilonova, image):
    made = kilonova.flavor(cloud)
    body = {"server": {"name": "one", "flavorRef": made, "imageRef": image, "networks": "none"}}
    server = expect(kilonova.call(cloud.demo, "POST", "/servers", body), 202).json()["server"]["id"]
    kilonova.wait(cloud.demo, server, "ACTIVE")
    return server, made


def refusals(cloud, kilonova, image):
    """Boots from images that the user cannot see, or that do not fit."""
    private = expect(call("POST", f"{cloud.glance}/v2/images", cloud.admin, {"name": "x", "visibility": "private"}), 201)
    queued = expect(call("POST", f"{cloud.glance}/v2/images", cloud.demo, {"name": "q"}), 201).json()["id"]
    made = kilonova.flavor(cloud)
    for ref, words in ((private.json()["id"], "could not be found"), (queued, "is not active")):
        body = {"server": {"name": "no", "flavorRef": made, "imageRef": ref, "networks": "none"}}
        answer = expect(kilonova.call(cloud.demo, "POST", "/servers", body), 400)
        if words not in answer.json()["badRequest"]["message"]:
            raise Wrong(answer.body)
    for one in (private.json()["id"], queued):
        expect(call("DELETE", f"{cloud.glance}/v2/images/{one}", cloud.admin), 204)


def snapshots(cloud, kilonova, server, image):
    """Each image is as upstream leaves it."""
    answer = kilonova.act(cloud.demo, server, {"createImage": {"name": "picture", "metadata": {"for": "tests"}}})
    taken = answer.json()["image_id"]
    kilonova.wait(cloud.demo, server, "ACTIVE")
    shown = cloud.image(taken)
    data = expect(call("GET", f"{cloud.glance}/v2/images/{taken}/file", cloud.demo), 200).body
    check("the size", shown["size"], len(data))
    check("the hash", shown["os_hash_value"], hashlib.sha512(data).hexdigest())
    for key, value in {
        "name": "picture", "status": "active", "visibility": "private", "disk_format": "raw", "container_format": "bare",
        "min_disk": 1, "image_type": "snapshot", "instance_uuid": server, "base_image_ref": image, "for": "tests",
        "image_location": "snapshot", "image_state": "available", "hw_disk_bus": "virtio",
        "owner_id": shown["owner"],
    }.items():
        check(key, shown.get(key), value)
    for _ in range(3):
        backup = {"name": "daily", "backup_type": "daily", "rotation": 1}
        kilonova.act(cloud.demo, server, {"createBackup": backup})
        kilonova.wait(cloud.demo, server, "ACTIVE")
        time.sleep(1.1)     # Glance orders images by seconds
    until("one backup stays", lambda: len(cloud.images(image_type="backup", instance_uuid=server)) == 1)
    return taken


def shelving(cloud, kilonova, server):
    kilonova.act(cloud.demo, server, {"shelve": None})
    kilonova.wait(cloud.demo, server, "SHELVED_OFFLOADED")
    check("the number of shelved images", len(cloud.images(name="one-shelved", instance_uuid=server)), 1)
    kilonova.act(cloud.demo, server, {"unshelve": None})
    kilonova.wait(cloud.demo, server, "ACTIVE")
    until("the shelved image is gone", lambda: not cloud.images(name="one-shelved", instance_uuid=server))


def killed(cloud, kilonova, server):
    """kill -9 during snapshots: afterwards each image is complete or deleted."""
    for delay in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        process = subprocess.Popen([sys.executable, "-c", (
            "import sys, urllib.request as u\n"
            "r = u.Request(sys.argv[1], data=b'{\"createImage\": {\"name\": \"killed\"}}', method='POST',"
            " headers={'X-Auth-Token': sys.argv[2], 'Content-Type': 'application/json'})\n"
            "try:\n    u.urlopen(r, timeout=60).read()\nexcept Exception:\n    pass\n"),
            f"{kilonova.url}/servers/{server}/action", cloud.demo], stdin=subprocess.DEVNULL)
        time.sleep(0.15 + delay)
        kilonova.kill()
        process.wait()
        kilonova.start()
        kilonova.wait(cloud.demo, server, "ACTIVE")
    # An interrupted request is due after 15 minutes, as its row states.
    database = os.path.join(kilonova.folder, "state", "kilonova.db")
    rows = dict(sqlite3.connect(f"file:{database}?mode=ro", uri=True).execute("SELECT id, state FROM glance_images"))

    def settled():
        left = [one for one in cloud.images(name="killed", instance_uuid=server) if one["status"] != "active"]
        return all(rows.get(one["id"]) == "creating" for one in left)

    until("incomplete images are deleted, or a row states when they will be", settled)


def scene(cloud, kilonova):
    image = cloud.upload("cirros", hw_disk_bus="virtio")
    refusals(cloud, kilonova, image)
    server, flavor = boot(cloud, kilonova, image)
    kept = snapshots(cloud, kilonova, server, image)
    shelving(cloud, kilonova, server)
    kilonova.act(cloud.demo, server, {"rescue": {"rescue_image_ref": kept}}, 200)
    kilonova.wait(cloud.demo, server, "RESCUE")
    kilonova.act(cloud.demo, server, {"unrescue": None})
    kilonova.wait(cloud.demo, server, "ACTIVE")
    kilonova.act(cloud.demo, server, {"rebuild": {"imageRef": image}})
    kilonova.wait(cloud.demo, server, "ACTIVE")
    killed(cloud, kilonova, server)
    expect(kilonova.call(cloud.demo, "DELETE", f"/servers/{server}"), 204)
    until("the server is gone", lambda: kilonova.server(cloud.demo, server) is None)
    expect(kilonova.call(cloud.admin, "DELETE", f"/flavors/{flavor}"), 202)
    for one in cloud.images():
        if one.get("instance_uuid") == server or one["id"] == image:
            expect(call("DELETE", f"{cloud.glance}/v2/images/{one['id']}", cloud.admin), 204)


if __name__ == "__main__":
    sys.exit(main(__doc__, "cloud", lambda program: play("cloud", program, scene)))
