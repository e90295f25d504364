"""How a server is reached: its address, TLS, a proxy on the way, and the head of each request."""

from __future__ import annotations

import base64
import ipaddress
import json
import socket
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from harness.core.errors import UserError

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Route:
    """The way to one server. Names are looked up once, so that no request waits for it."""

    host: str
    family: int
    address: Any
    """The first hop's socket address: the server's, or a proxy's."""
    tls: bool
    tunnel: bytes
    """What asks a proxy for a connection to a TLS server; empty where none is in between."""
    target: str
    """What a request line's path begins with: the base URL's path, the whole URL for a proxy."""
    headers: str

    def request(self, path: str, body: Mapping[str, Any]) -> bytes:
        """The bytes of one POST of `body` as JSON to `path` below the base URL."""
        content = json.dumps(body, separators=(",", ":")).encode()
        head = f"POST {self.target}/{path} HTTP/1.1\r\n{self.headers}"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content

    def connect(self) -> socket.socket:
        """A non-blocking socket on its way to the first hop. Raises `OSError`."""
        found = socket.socket(self.family, socket.SOCK_STREAM)
        found.setblocking(False)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.connect_ex(self.address)
        return found


def find_route(base_url: str, key: str | None, timeout_s: float) -> Route:
    """The route to `base_url`. The environment's proxies are used for servers elsewhere only.

    Tries each address that the name has. Raises `OSError` when none accepts a connection, and as
    `find_proxy` does.
    """
    parts = urlsplit(base_url)
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    name = f"[{host}]" if ":" in host else host
    origin = name if port == PORTS[parts.scheme] else f"{name}:{port}"
    headers = {
        "Host": origin,
        "Accept": "text/event-stream",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "User-Agent": "decodebench",
    }
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    hop, tunnel, target = (host, port), b"", parts.path
    if found := find_proxy(base_url):
        proxy = urlsplit(found)
        hop = (proxy.hostname or "", proxy.port or PORTS["http"])
        credentials = _credentials(proxy.username, proxy.password)
        if parts.scheme == "https":
            lines = [f"CONNECT {name}:{port} HTTP/1.1", f"Host: {name}:{port}", *credentials]
            tunnel = "\r\n".join([*lines, "", ""]).encode()
        else:
            target = f"http://{origin}{parts.path}"
            headers |= dict(line.split(": ", 1) for line in credentials)
    with socket.create_connection(hop, timeout_s) as reached:
        family, address = reached.family, reached.getpeername()
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return Route(host, family, address, parts.scheme == "https", tunnel, target, head)


def unreachable(base_url: str, timeout_s: float) -> str:
    """Why nobody accepts a connection there now, in a few words; empty where somebody does. Raises
    `UserError` as `find_proxy` does."""
    try:
        find_route(base_url, None, timeout_s)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def tls_context() -> ssl.SSLContext:
    """Certificates are checked against the system's authorities, or `SSL_CERT_FILE`'s."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def is_loopback(host: str) -> bool:
    """Whether `host` is this machine by its name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def find_proxy(base_url: str) -> str | None:
    """The address of the proxy that the environment names for a server elsewhere; None without one.
    Raises `UserError` for a proxy that is not spoken to in HTTP, whose address may hold a password
    and is not repeated."""
    server = urlsplit(base_url)
    host = server.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    found = urllib.request.getproxies_environment()
    name = next((name for name in (server.scheme, "all") if found.get(name)), None)
    if name is None:
        return None
    url = found[name] if "://" in found[name] else f"http://{found[name]}"
    try:
        parts = urlsplit(url)
        is_http = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")  # as it is looked up
    except ValueError:
        is_http = False
    if not is_http:
        raise UserError(
            f"backend 'http': ${name}_proxy: expected http://HOST[:PORT], got "
            f"{url.partition(':')[0]}://...; $no_proxy with {host} in it does without"
        )
    return url


def _credentials(user: str | None, password: str | None) -> list[str]:
    if user is None:
        return []
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return [f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}"]
