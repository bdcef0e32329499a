"""The HTTP server of `heturun watch`: one page for one job, at 127.0.0.1.

Other users of this machine reach the port too, so the address has a random token. Without it, every path is refused. A page
of another site could make its own name point to 127.0.0.1 and then read what it gets (DNS rebinding). Such a browser sends
that name as the Host, so only local names are answered. Any port is allowed there, because ssh -L may use another one.

    /TOKEN/               the page, with the files of FILES beside it
    /TOKEN/state          the state of the job, as JSON (watched.py)
    /TOKEN/losses         the curve of the loss
    /TOKEN/log?of=NAME    the end of a log; with from=N, its lines from byte N
    /TOKEN/timeline.svg   the last steps, if the job has written a trace
"""
import contextlib
import hmac
import http.server
import json
import os
import pathlib
import re
import secrets
import signal
import socket
import socketserver
import sys
import tempfile
import threading
import urllib.parse
import webbrowser

from hetu.launch.found import JobError
from hetu.launch.watched import MOST_GROUPS, Watched

PAGE = pathlib.Path(__file__).resolve().parent / "page"
FILES = {"": ("index.html", "text/html"), "watch.css": ("watch.css", "text/css"),
         "watch.js": ("watch.js", "text/javascript"), "curve.js": ("curve.js", "text/javascript")}
HOST = "127.0.0.1"
LOCAL = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?", re.I)
MOST = 32  # connections at the same time; further ones are closed
PATIENCE_S = 30.0  # for the next request of a connection
OPENED_S = 30.0  # after which a browser has read the file that names the address
NICE = 5  # the page takes no time from workers
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
OF_FIGURE = "default-src 'none'; style-src 'unsafe-inline'"  # a figure has its styles inside
SENT_ALWAYS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
               ("Cross-Origin-Resource-Policy", "same-origin"))


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Serves the page of a job at a port of this host; 0: a free one. Raises OSError."""

    daemon_threads = True

    def __init__(self, watched, port):
        self.watched = watched
        self.token = secrets.token_urlsafe(24)
        self._places = threading.BoundedSemaphore(MOST)
        self._open = set()  # sockets of connections
        super().__init__((HOST, port), Handler)

    def server_bind(self):  # without HTTPServer's search for the name of this host, which may take seconds
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def address(self):
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def process_request(self, request, client_address):
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._places.release()
            raise

    def process_request_thread(self, request, client_address):
        self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._places.release()

    def server_close(self):
        """Ends all connections, too: a browser keeps one for its next requests."""
        super().server_close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address):
        """Prints one line for an error of this program, and nothing if the browser has left."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            print(f"heturun watch: {type(error).__name__}: {error}", file=sys.stderr)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE_S
    server_version, sys_version = "heturun", ""

    def do_GET(self):
        if not LOCAL.fullmatch(self.headers.get("Host", "")):
            self._refuse(403, "this page is served to this host only: open it as http://127.0.0.1:PORT/…")
            return
        parts = urllib.parse.urlsplit(self.path)
        token, slash, name = parts.path[1:].partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(403, "the address lacks the token of this page: open the whole address that heturun watch printed")
        elif not slash:
            self._send(308, "text/plain", b"", [("Location", f"/{token}/")])
        else:
            self._answer(name, urllib.parse.parse_qs(parts.query))

    do_HEAD = do_GET

    def _answer(self, name, query):
        watched = self.server.watched
        if name in FILES:
            file, kind = FILES[name]
            self._send(200, f"{kind}; charset=utf-8", (PAGE / file).read_bytes())
        elif name == "state":
            self._send_json(watched.state())
        elif name == "losses":
            self._send_json(watched.losses(min(max(_number(query, "most") or MOST_GROUPS, 2), 4 * MOST_GROUPS)))
        elif name == "log" and (found := watched.log(query.get("of", [""])[0], _number(query, "from"))) is not None:
            self._send_json(found)
        elif name == "timeline.svg":
            figure, reason = watched.draw()
            if figure is None:
                self._refuse(404, reason)
            else:
                self._send(200, "image/svg+xml", figure, policy=OF_FIGURE)
        else:
            self._refuse(404, "this page has no such file")

    def _send_json(self, value):
        self._send(200, "application/json", json.dumps(value, allow_nan=False).encode())

    def _refuse(self, status, text):
        self._send(status, "text/plain; charset=utf-8", f"{text}\n".encode())

    def _send(self, status, kind, body, more=(), policy=POLICY):
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), ("Content-Security-Policy", policy),
                            *SENT_ALWAYS, *more):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        """Prints nothing: the address has the token."""


def _number(query, name):
    """Returns a whole number of the query, or None."""
    text = query.get(name, [""])[0]
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def serve(found, port, opens):
    """Serves the page of a job until Ctrl-C. Prints its address, and opens it in a browser if `opens` is true and there is a
    screen. Returns the exit status. Raises JobError."""
    if port > 65535:
        raise JobError(f"--port {port}: it must be a port from 1 to 65535")
    try:
        server = Server(Watched(found.path), port)
    except OSError as error:
        raise JobError(f"--port {port}: cannot listen at port {port} of {HOST}: {os.strerror(error.errno or 0)}; choose "
                       "another one, or leave --port out") from None
    os.nice(NICE)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    print(f"job {found.name} ({found.state()}): {server.address()}\nKeep the address to yourself. Ctrl-C ends the page, and "
          "not the job.", flush=True)
    if os.environ.get("SSH_CONNECTION"):
        print(f"From your own machine: ssh -N -L {server.server_port}:{HOST}:{server.server_port} {os.uname().nodename}",
              flush=True)
    opener = Opener(server.address()) if opens and has_screen() else None
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        server.server_close()
        if opener:
            opener.close()
    return 0


def has_screen():
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class Opener:
    """Opens an address in the browser. All users can read the arguments of a browser's process, so they don't contain the
    address, but a file of this user's that leads there."""

    def __init__(self, address):
        self._folder = tempfile.TemporaryDirectory(prefix="hetu-watch-")  # readable by this user only
        file = pathlib.Path(self._folder.name, "page.html")
        file.write_text(f'<!DOCTYPE html><meta charset="utf-8"><title>heturun watch</title>'
                        f'<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">the job</a>\n')
        threading.Thread(target=webbrowser.open, args=(file.as_uri(),), daemon=True).start()
        self._timer = threading.Timer(OPENED_S, self._folder.cleanup)
        self._timer.daemon = True
        self._timer.start()

    def close(self):
        self._timer.cancel()
        self._folder.cleanup()
