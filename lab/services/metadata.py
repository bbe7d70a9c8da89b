"""Neutron's metadata agent: adds the requesting server's id to a request, and signs it for Nova."""

import hashlib
import hmac
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class MetadataAgent:
    """The agent, for the proxies of all nodes."""

    def __init__(self, neutron, nova_port, secret):
        self.neutron, self.nova_port, self.secret = neutron, nova_port, secret
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                status, text = agent.answer(self.path, self.headers)
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        """Closes its port."""
        self.server.shutdown()
        self.server.server_close()

    def _server_of(self, network, address):
        with self.neutron.lock:
            for port in self.neutron.ports.values():
                if port["network_id"] == network and any(one["ip_address"] == address for one in port["fixed_ips"]):
                    return port["device_id"], port["tenant_id"]
        return None, None

    def answer(self, path, headers):
        """Nova's answer for the guest with this address on this network."""
        address = headers.get("X-Forwarded-For", "")
        server, project = self._server_of(headers.get("X-OVN-Network-ID"), address)
        if not server:
            return 404, b"no port has the address"
        signature = hmac.new(self.secret.encode(), server.encode(), hashlib.sha256).hexdigest()
        connection = http.client.HTTPConnection("127.0.0.1", self.nova_port, timeout=60)
        try:
            connection.request("GET", path, headers={
                "X-Forwarded-For": address, "X-Instance-ID": server, "X-Tenant-ID": project, "X-Instance-ID-Signature": signature})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError as error:
            return 503, str(error).encode()
        finally:
            connection.close()
