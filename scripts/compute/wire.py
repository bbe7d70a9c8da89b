"""Requests in a form that can be compared, and the two recordings of the same client.

`recorded.jsonl.xz` was recorded against a real Nova, `cli-wire.txt` against a stub with invented answers:
of the second, only the client's requests count, and only for commands that the first lacks. The comparison
ignores ids, numbers and times, but not names. It also ignores Neutron, which was a stub in both.
"""

import collections
import json
import lzma
import os
import re
import shlex
import urllib.parse

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
NUMBERED = re.compile(r"/(os-aggregates|migrations)/\d+")
REQUEST = re.compile(r"\breq-(ID|1\b)")
MIGRATION = re.compile(r"^(server migration (?:abort|show|force complete) \S+) \d+$")
IMAGES = re.compile(r"in:ID(,ID)+")
# The stub's only flavor.
FLAVOR = re.compile(r"/flavors/1\b")
# Values that are generated on each call.
MADE = {"public_key": "KEY", "user_data": "DATA", "start": "TIME", "end": "TIME", "adminPass": "PASS"}
# Objects with keys that their owners choose, such as those of an image.
FREE = {"metadata", "extra_specs", "properties", "addresses", "links", "scheduler_hints", "OS-SCH-HNT:scheduler_hints",
        "hosts", "cpu_info", "events", "fault", "image", "details", "rules", "images"}
PREFIXES = {"compute": "NOVA", "image": "GL", "identity": "KS", "network": "NEU", "placement": "PL",
            "accelerator": "CY"}

Request = collections.namedtuple("Request", "method service path version body status response")


def plain(text):
    """A text without ids."""
    return UUID.sub("ID", text)


def line_key(line):
    """A command's key, the same for a recording and for a run."""
    words = [os.path.basename(word) if word.startswith(("/", "$PEER_ROOT")) else word
             for word in shlex.split(line)]
    return REQUEST.sub("REQ", MIGRATION.sub(r"\1 N", plain(" ".join(words))))


def _body(text):
    if not text:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return "<bytes>"

    def walk(value, key=None):
        if key in MADE:
            return MADE[key]
        if isinstance(value, dict):
            return {name: walk(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [walk(each, key) for each in value]
        if key == "flavorRef" and value == "1":
            return "ID"
        return plain(value) if isinstance(value, str) else value

    return walk(value)


def _path(path, query):
    pairs = [(name, MADE.get(name, value)) for name, value
             in urllib.parse.parse_qsl(query, keep_blank_values=True)]
    path = NUMBERED.sub(r"/\1/N", plain(urllib.parse.unquote(path))).rstrip("/")
    text = "&".join(f"{name}={value}" for name, value in sorted(pairs))
    path = FLAVOR.sub("/flavors/ID", plain(f"{path}?{text}" if text else path))
    return IMAGES.sub("in:ID", REQUEST.sub("REQ", path))


def _service(url, ports):
    parts = urllib.parse.urlsplit(url)
    if parts.port in ports:
        return ports[parts.port], parts.path, parts.query
    first, _, rest = parts.path.lstrip("/").partition("/")
    return PREFIXES.get(first, first), f"/{rest}" if rest else "", parts.query


def compared(requests, ports=()):
    """The requests that count, in order; consecutive polls are merged."""
    found = []
    for request in requests:
        service, path, query = _service(request["url"], ports)
        headers = {name.lower(): value for name, value in request["headers"].items()}
        discovery = request["method"] == "GET" and re.fullmatch(r"(/v[0-9.]+)?/?", path)
        if service == "NEU" or discovery or path.endswith("/auth/tokens"):
            continue
        version = headers.get("openstack-api-version", "").split(" ")[-1]
        one = Request(request["method"], service, _path(path, query), version,
                      _body(request.get("body")), request.get("status"), request.get("response"))
        if one.method == "GET" and one.path == "/v2.1/servers/ID" and found \
                and (found[-1].method != "GET" or found[-1].path == one.path):
            # A poll for the outcome: its number and answers depend on timing.
            one = one._replace(status=None, response=None)
        if found and found[-1][:6] == one[:6]:
            continue
        found.append(one)
    return found


def shown(request):
    """One line that describes a request."""
    version = f" @{request.version}" if request.version else ""
    body = "" if request.body is None else f" {json.dumps(request.body, sort_keys=True)}"
    return f"{request.method} {request.service} {request.path}{version}{body} -> {request.status}"


def shape(value, key=None):
    """The keys of an answer, as dotted paths with the kinds of their values."""
    found = collections.defaultdict(set)

    def walk(value, at, key):
        if isinstance(value, dict) and key not in FREE:
            for name, each in value.items():
                walk(each, f"{at}.{name}" if at else name, name)
        elif isinstance(value, list) and key not in FREE:
            found[at].add("list")
            for each in value:
                walk(each, f"{at}[]", None)
        else:
            kind = type(value).__name__
            found[at].add("number" if kind in ("int", "float") else kind)

    walk(value, "", key)
    return found


def shapes_differ(theirs, ours):
    """The differences between two answers; lists that are empty in one of them are ignored."""
    theirs, ours = shape(theirs), shape(ours)

    def below_empty(path, other):
        return any(path.startswith(f"{at}[]") and not any(o.startswith(f"{at}[]") for o in other)
                   for at in other if "list" in other[at])

    said = [f"no {path}" for path in theirs if path not in ours and not below_empty(path, ours)]
    said += [f"also {path}" for path in ours if path not in theirs and not below_empty(path, theirs)]
    for path in theirs.keys() & ours.keys():
        kinds, others = theirs[path] - {"NoneType"}, ours[path] - {"NoneType"}
        if kinds and others and not kinds & others:
            said.append(f"{path} is {'/'.join(sorted(others))}, not {'/'.join(sorted(kinds))}")
    return sorted(said)


def printed_differ(text, value):
    """Fields or columns that only a recorded table has, or only the new output."""
    lines = text.splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("|")]
    if not rows or not lines[0].startswith("+") or not value:
        return []
    if rows[0] == ["Field", "Value"]:
        theirs = [row[0] for row in rows[1:] if row[0]]
    else:
        theirs = rows[0]
    ours = list(value if isinstance(value, dict) else value[0])
    return [f"no `{name}`" for name in theirs if name not in ours] \
        + [f"also `{name}`" for name in ours if name not in theirs]


class Recording:
    """Commands by key: exit code, requests, output."""

    def __init__(self, name, real):
        self.name, self.real = name, real
        self.commands = {}

    def add(self, line, code, requests, said):
        self.commands.setdefault(line_key(line), (line, code, requests, said))


def read_real(path):
    """The recording against a real Nova."""
    ports = {18510: "KS", 18784: "NOVA", 18788: "PL", 18282: "GL", 18686: "CY", 18696: "NEU"}
    recording = Recording("a real Nova", True)
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            one = json.loads(line)
            if not one["region"]:
                recording.add(one["cmd"], one["rc"], compared(one["reqs"], ports),
                              one["stdout"] + one["stderr"])
    return recording


def read_stand_in(path):
    """The recording against a stub, in its own format."""
    recording = Recording("the same client", False)
    line, code, requests, said = None, 0, [], []

    def close():
        if line:
            recording.add(line, code, compared(requests), "\n".join(said))

    with open(path, encoding="utf-8") as file:
        for text in file:
            head = re.fullmatch(r"### openstack (.*) \(rc=(\d+)\)\n", text)
            if head:
                close()
                line, code, requests, said = head[1], int(head[2]), [], []
                continue
            if text.startswith("   !! "):
                said.append(text[6:].strip())
                continue
            one = re.fullmatch(r"   (\w+) (\S+) -> (\d+) \[(.*?)\] ?(.*)\n", text)
            if one:
                requests.append({"method": one[1], "url": f"http://x{one[2]}", "body": one[5] or None,
                                 "headers": {"OpenStack-API-Version": one[4]}, "status": int(one[3])})
    close()
    return recording
