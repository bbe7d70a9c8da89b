"""A block storage service without volumes.

openstacksdk skips its tests of servers where there is no such service, and asks it for a server's volumes. This service
answers with its version and empty lists, and creates nothing.
"""

import http.server
import json
import threading

LISTS = ("volumes", "snapshots", "backups", "types", "groups")


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):  # pylint: disable=invalid-name
        """The version, a list, or 404."""
        steps = self.path.split("?")[0].strip("/").split("/")
        kind = steps[1] if len(steps) > 1 else ""
        if len(steps) < 2:
            at = f"http://{self.headers['Host']}/v3/"
            self.answer(200, {"versions": [{"id": "v3.0", "status": "CURRENT", "version": "3.70", "min_version": "3.0",
                                            "links": [{"rel": "self", "href": at}]}]})
        elif kind in LISTS and steps[2:] in ([], ["detail"]):
            self.answer(200, {"volume_types" if kind == "types" else kind: []})
        else:
            self.refuse()

    def refuse(self):
        """Answers 404: there are no other resources."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.answer(404, {"itemNotFound": {"code": 404, "message": "There are no volumes here."}})

    do_POST = do_PUT = do_DELETE = refuse

    def answer(self, status, body):
        """Sends JSON."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):  # pylint: disable=arguments-differ
        """Nothing is logged."""


def serve():
    """Starts the service in a thread; returns its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v3"
