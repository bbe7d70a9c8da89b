"""Cinder: volumes of several types, their attachments and snapshots, for a compute service and the stock client."""

import json
import os
import threading
import uuid

from services.service import Refusal, Service, fetch

NEWEST = 71


def bad(message):
    """The refusal of an invalid request, or of one that the state does not allow."""
    return Refusal(400, "badRequest", message)


class Cinder(Service):
    """The service. The volumes of each type are in a backend; the default type is `iscsi`."""

    def __init__(self, keystone, folder, target):
        self.target, self.backends = target, {"iscsi": target}
        self.volumes, self.attachments, self.snapshots = {}, {}, {}
        # Volumes that became available after they were in use, in order.
        self.freed = []
        # Set once the other services run: the URLs of Glance and Nova.
        self.glance = self.nova = None
        super().__init__("cinder", keystone, folder)

    def openly(self, path):
        if path == "/":
            return 300, {"versions": [{"id": "v3.0", "status": "CURRENT", "version": f"3.{NEWEST}", "min_version": "3.0",
                                       "links": [{"rel": "self", "href": f"{self.url}/v3/"}], "media-types": [],
                                       "updated": "2023-08-31T00:00:00Z"}]}
        if path.rstrip("/") == "/v3":
            return 200, self.openly("/")[1]
        return None

    def refusal(self, refusal):
        return {refusal.kind: {"code": refusal.status, "message": refusal.message}}

    def answer(self, request):
        parts, by = request.parts[1:], request.caller
        if parts and parts[0] not in ("volumes", "attachments", "snapshots", "types", "limits"):
            if parts[0] != by.project and not by.admin:
                raise bad("Malformed request url")
            parts = parts[1:]
        match (request.method, *parts):
            case ("GET", "types"):
                return 200, {"volume_types": [{"id": name, "name": name} for name in self.backends]}
            case ("GET", "limits"):
                return 200, {"limits": {"rate": [], "absolute": {
                    "totalSnapshotsUsed": len(self.snapshots), "maxTotalSnapshots": -1}}}
            case ("GET", "volumes") | ("GET", "volumes", "detail"):
                return 200, {"volumes": [self.shown(one, by) for one in self._own(self.volumes, request)]}
            case ("POST", "volumes"):
                return 202, {"volume": self.create(request)}
            case ("GET", "volumes", ident):
                return 200, {"volume": self.shown(self._volume(ident, by), by)}
            case ("DELETE", "volumes", ident):
                return self.delete(self._volume(ident, by))
            case ("POST", "volumes", ident, "action"):
                return self.act(self._volume(ident, by), request)
            case ("GET", "snapshots", "detail"):
                return 200, {"snapshots": [self._snapshot(one) for one in self._own(self.snapshots, request)]}
            case ("POST", "snapshots"):
                return 202, {"snapshot": self.snapshot(request)}
            case ("GET" | "DELETE", "snapshots", ident):
                found = self.snapshots.get(ident)
                if not found or not by.admin and found["project"] != by.project:
                    raise Refusal(404, "itemNotFound", f"Snapshot {ident} could not be found.")
                if request.method == "GET":
                    return 200, {"snapshot": self._snapshot(found)}
                os.remove(self.target.file(ident))
                del self.snapshots[ident]
                return 202, None
            case ("GET", "attachments", "detail"):
                server, everywhere = request.one("instance_id"), by.admin and request.one("all_tenants")
                return 200, {"attachments": [
                    self._attachment(one) for one in self.attachments.values()
                    if server in (None, one["server"]) and (everywhere or self.volumes[one["volume"]]["project"] == by.project)]}
            case ("POST", "attachments"):
                return 200, {"attachment": self.reserve(request)}
            case (_, "attachments", ident, *rest):
                if ident not in self.attachments:
                    raise Refusal(404, "itemNotFound", f"Volume attachment could not be found with filter: attachment_id = {ident}")
                return self.attached(self.attachments[ident], request, tuple(rest))
        raise Refusal(404, "itemNotFound", "The resource could not be found.")

    def _own(self, objects, request):
        """The objects that a list shows."""
        by, wanted = request.caller, request.one("metadata")
        everywhere = by.admin and request.one("all_tenants")
        for one in objects.values():
            pairs = [f"{{'{key}': '{value}'}}" for key, value in one["metadata"].items()]
            if (everywhere or one["project"] == by.project) and (wanted is None or wanted in pairs):
                yield one

    def _volume(self, ident, by):
        found = self.volumes.get(ident)
        if not found or not by.admin and found["project"] != by.project:
            raise Refusal(404, "itemNotFound", f"Volume {ident} could not be found.")
        return found

    def backend(self, ident):
        """The backend of a volume."""
        return self.backends[self.volumes[ident]["type"]]

    def of_volume(self, ident):
        """The attachments of a volume, the oldest first."""
        return [one for one in self.attachments.values() if one["volume"] == ident]

    def shown(self, volume, by=None):
        """A volume as the API shows it."""
        ident = volume["id"]
        attached = [{"id": ident, "volume_id": ident, "server_id": one["server"], "attachment_id": one["id"],
                     "host_name": (one["connector"] or {}).get("host"), "device": (one["connector"] or {}).get("mountpoint"),
                     "attached_at": "2026-11-24T02:34:48.000000"}
                    for one in self.of_volume(ident) if one["status"] != "reserved"]
        view = {key: volume[key] for key in ("id", "name", "description", "status", "size", "metadata", "snapshot_id")}
        view.update(availability_zone="nova", volume_type=volume["type"], multiattach=False, encrypted=False, source_volid=None,
                    bootable=str(bool(volume["image"])).lower(), attachments=attached, links=[], migration_status=None,
                    created_at="2026-11-24T02:34:48.000000", updated_at=None, shared_targets=False,
                    service_uuid="0fd22d51-2a3a-4b16-8ef0-4d2f3a5a4c11")
        if volume["image"]:
            view["volume_image_metadata"] = volume["image"]
        if by and by.admin:
            view["os-vol-tenant-attr:tenant_id"] = volume["project"]
        return view

    def create(self, request):
        """A new volume: empty, from an image or from a snapshot."""
        asked, by = request.body["volume"], request.caller
        source = self.snapshots.get(asked.get("snapshot_id")) if asked.get("snapshot_id") else None
        if asked.get("snapshot_id") and not source:
            raise Refusal(404, "itemNotFound", f"Snapshot {asked['snapshot_id']} could not be found.")
        size = asked.get("size") or source and source["size"]
        if not isinstance(size, int) or size < 1:
            raise bad("Invalid input received: Volume size must be an integer and greater than 0")
        kind = asked.get("volume_type") or "iscsi"
        if kind not in self.backends:
            raise Refusal(404, "itemNotFound", f"Volume type with name {kind} could not be found.")
        ident = str(uuid.uuid4())
        volume = {"id": ident, "type": kind, "project": by.project, "status": "creating", "size": size, "image": None,
                  "name": asked.get("name") or "", "description": asked.get("description"),
                  "metadata": asked.get("metadata") or {}, "snapshot_id": asked.get("snapshot_id"), "password": None}
        self.volumes[ident] = volume
        volume["password"] = self.backends[kind].create(ident, size, source and self.target.file(source["id"]))
        if source:
            volume["image"] = source["image"]
        if asked.get("imageRef"):
            self._download(volume, asked["imageRef"], by.token, "available")
        else:
            volume["status"] = "available"
        return self.shown(volume, by)

    def _download(self, volume, image, token, status, then=None):
        """Fills a volume from an image in the background; the volume then has this status."""
        def download():
            found = status
            try:
                code, _, text = fetch("GET", f"{self.glance}/v2/images/{image}", token)
                properties = json.loads(text)
                data, _, content = fetch("GET", f"{self.glance}/v2/images/{image}/file", token, timeout=300)
                if (code, data) != (200, 200):
                    raise OSError(f"Glance answers {code} and {data}")
                part = self.target.file(f"{volume['id']}.image")
                with open(part, "wb") as file:
                    file.write(content)
                self.target.fill(volume["id"], part)
                os.remove(part)
                known = ("kernel_id", "ramdisk_id", "os_command_line", "disk_format", "container_format", "min_disk",
                         "min_ram", "size", "checksum")
                kept = {key: str(value) for key, value in properties.items()
                        if (key in known or key.startswith(("hw_", "os_"))) and value is not None}
                volume["image"] = {**kept, "image_id": image, "image_name": properties["name"]}
            except (OSError, ValueError, KeyError) as error:
                self.log(f"the image {image} could not be copied to the volume {volume['id']}: {error}")
                found = "error"
            with self.lock:
                volume["status"] = found
            if then:
                then()
        threading.Thread(target=download, daemon=True).start()

    def delete(self, volume):
        """Deletes a volume that nothing uses."""
        ident = volume["id"]
        snapshots = any(one["volume_id"] == ident for one in self.snapshots.values())
        if volume["status"] not in ("available", "error") or snapshots or self.of_volume(ident):
            raise bad("Invalid volume: Volume status must be available or error or error_restoring or error_extending or "
                      "error_managing and must not be migrating, attached, belong to a group, have snapshots, awaiting a "
                      "transfer, or be disassociated from snapshots after volume transfer.")
        self.backend(ident).delete(ident)
        del self.volumes[ident]
        return 202, None

    def act(self, volume, request):
        """An action on a volume."""
        action = next(iter(request.body), "")
        match action:
            case "os-begin_detaching":
                if volume["status"] != "in-use":
                    raise bad("Invalid volume: Unable to detach volume. Volume status must be 'in-use' and attach_status "
                              "must be 'attached' to detach.")
                volume["status"] = "detaching"
            case "os-roll_detaching":
                if volume["status"] == "detaching":
                    volume["status"] = "in-use"
            case "os-reimage":
                asked, before = request.body[action], volume["status"]
                allowed = ["available", "error"] + (["reserved"] if asked.get("reimage_reserved") else [])
                if before not in allowed:
                    raise bad(f"Invalid volume: Volume {volume['id']} status must be {', '.join(allowed)} to reimage, but the "
                              f"current status is {before}.")
                volume["status"] = "downloading"
                servers = {one["server"] for one in self.of_volume(volume["id"])}
                self._download(volume, asked["image_id"], request.caller.token, before,
                               lambda: [self._event(server, volume["id"]) for server in servers])
            case _:
                raise bad(f"There is no such action: {action}")
        return 202, None

    def _event(self, server, volume):
        """Notifies Nova that the data of a volume were replaced."""
        body = {"events": [{"name": "volume-reimaged", "server_uuid": server, "tag": volume, "status": "completed"}]}
        status, _, text = fetch("POST", f"{self.nova}/os-server-external-events", self.keystone.token(), body,
                                **{"OpenStack-API-Version": "compute 2.93"})
        self.log(f"event volume-reimaged of {volume}: {status} {text.decode()}")

    def snapshot(self, request):
        """A snapshot of a volume."""
        asked = request.body["snapshot"]
        volume = self._volume(asked["volume_id"], request.caller)
        if not asked.get("force") and volume["status"] != "available":
            raise bad(f"Invalid volume: Volume {volume['id']} status must be available, but current status is: {volume['status']}.")
        ident = str(uuid.uuid4())
        self.target.copy(ident, volume["id"])
        self.snapshots[ident] = {
            "id": ident, "volume_id": volume["id"], "status": "available", "size": volume["size"], "name": asked.get("name") or "",
            "description": asked.get("description") or "", "metadata": asked.get("metadata") or {}, "image": volume["image"],
            "project": request.caller.project}
        return self._snapshot(self.snapshots[ident])

    @staticmethod
    def _snapshot(one):
        view = {key: value for key, value in one.items() if key not in ("image", "project")}
        return {**view, "os-extended-snapshot-attributes:project_id": one["project"]}

    def _attachment(self, one):
        """An attachment as the API shows it."""
        volume, info = self.volumes[one["volume"]], {}
        if one["connector"]:
            info = {**self.backend(volume["id"]).info(volume["id"], volume["password"], one["connector"]),
                    "volume_id": volume["id"], "attachment_id": one["id"], "access_mode": "rw", "encrypted": False,
                    "qos_specs": None, "cacheable": False}
        return {"id": one["id"], "volume_id": one["volume"], "instance": one["server"], "status": one["status"],
                "attach_mode": "rw", "attached_at": "", "detached_at": "", "connection_info": info}

    def reserve(self, request):
        """A new attachment, connected immediately if the request has a connector."""
        asked = request.body["attachment"]
        volume = self._volume(asked["volume_uuid"], request.caller)
        ident, server, status = volume["id"], asked["instance_uuid"], volume["status"]
        if status in ("available", "downloading"):
            volume["status"] = "reserved"
        elif not any(one["server"] == server for one in self.of_volume(ident)):
            raise bad(f"Invalid volume: Volume {ident} status must be available or downloading to reserve, but the current "
                      f"status is {status}.")
        one = {"id": str(uuid.uuid4()), "volume": ident, "server": server, "status": "reserved", "connector": None}
        self.attachments[one["id"]] = one
        if asked.get("connector"):
            try:
                self._connect(one, asked["connector"])
            except Refusal:
                del self.attachments[one["id"]]
                raise
        return self._attachment(one)

    def _connect(self, one, connector):
        if not connector.get("host") or not connector.get("initiator"):
            raise bad("Invalid input received: Connector doesn't have required information: initiator")
        others = [other for other in self.of_volume(one["volume"]) if other is not one and other["connector"]]
        if any(other["connector"]["host"] == connector["host"] for other in others):
            raise bad(f"Invalid input received: Volume {one['volume']} is already attached to the host of this server")
        if one["connector"]:
            self.backend(one["volume"]).refuse(one["volume"], one["connector"]["initiator"])
        self.backend(one["volume"]).allow(one["volume"], connector["initiator"])
        one["connector"] = connector
        if one["status"] == "reserved":
            one["status"] = "attaching"
        volume = self.volumes[one["volume"]]
        if volume["status"] == "reserved":
            volume["status"] = "attaching"

    def attached(self, one, request, rest):
        """Answers a request for an attachment."""
        volume = self.volumes[one["volume"]]
        match (request.method, *rest):
            case ("GET",):
                return 200, {"attachment": self._attachment(one)}
            case ("PUT",):
                if volume["status"] == "error":
                    raise Refusal(409, "conflictingRequest", "ResourceConflict: Volume attachments can not be updated if the volume "
                                  f"is in an error state. The Volume {volume['id']} currently has a status of: error ")
                every = self.of_volume(volume["id"])
                if len(every) > 1 and any(other["connector"] for other in every):
                    raise Refusal(409, "conflictingRequest",
                                  f"ResourceConflict: duplicate connectors detected on volume {volume['id']}")
                before = one["status"]
                self._connect(one, request.body["attachment"]["connector"])
                # The answer still shows the previous status.
                return 200, {"attachment": {**self._attachment(one), "status": before}}
            case ("POST", "action") if "os-complete" in request.body:
                one["status"], volume["status"] = "attached", "in-use"
                return 204, None
            case ("DELETE",):
                if one["connector"] and not request.caller.service:
                    raise Refusal(409, "conflictingRequest", "Detected user call to delete in-use attachment. Call must come from "
                                  "the nova service and nova must be configured to send the service token. Bug #2004555")
                del self.attachments[one["id"]]
                if one["connector"]:
                    self.backend(volume["id"]).refuse(volume["id"], one["connector"]["initiator"])
                self._settle(volume)
                return 200, {"attachments": [self._attachment(other) for other in self.of_volume(volume["id"])]}
        raise Refusal(404, "itemNotFound", "The resource could not be found.")

    def _settle(self, volume):
        """Sets the status of a volume according to its attachments."""
        states = {one["status"] for one in self.of_volume(volume["id"])}
        before = volume["status"]
        volume["status"] = ("available" if not states else "in-use" if "attached" in states
                            else "attaching" if "attaching" in states else "reserved")
        if volume["status"] == "available" and before != "available":
            self.freed.append(volume["id"])

    # For the scenario, without the API.

    def read(self, volume, sector):
        """The text of a sector of a volume."""
        return self.backend(volume).read(volume, sector)

    def write(self, volume, sector, text):
        """Writes text to a sector of a volume that is connected to no host."""
        self.backend(volume).write(volume, sector, text)
