#!/usr/bin/env python3
"""A worker that holds a lock while it works, and stops when it is lost.

    worker.py KEY [STEPS]

Nothing but the standard library is used. The lock is bound to the connection:
if this process ends, in whatever way, the lock is free at once.
"""
import contextlib
import http.client
import json
import os
import socket
import sys
import threading
import time
import urllib.parse

URL = urllib.parse.urlsplit(os.environ.get("LOCKSIDECAR_URL", "http://localhost:5625"))


class NotAcquired(Exception):
    pass


class Lock:
    """A lock that lives as long as its connection.

    with Lock("nightly-report", wait="30s") as lock:
        while lock.held():
            ...
    """

    def __init__(self, key, **parameters):
        self._path = "/locks/" + urllib.parse.quote(key)
        self._form = urllib.parse.urlencode({"bind": "connection", **parameters})
        self._valid_until = 0.0
        self.lost = threading.Event()  # held no more, or not known to be

    def __enter__(self):
        self._connection = http.client.HTTPConnection(URL.hostname, URL.port)
        self._connection.request("POST", self._path, self._form,
                                 {"Content-Type": "application/x-www-form-urlencoded"})
        self._socket = self._connection.sock  # which getresponse may take away
        self._answer = self._connection.getresponse()
        if self._answer.status not in (200, 201):
            problem = json.load(self._answer)
            self._connection.close()
            raise NotAcquired(f"{problem['code']}: {problem.get('detail', '')}")
        self.fencing_token = int(self._answer.headers["Lock-Fencing-Token"])
        self._read_event()  # "held" comes first
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_):
        self.lost.set()
        # This wakes the reader; closing alone would leave it in its read.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._answer.close()
        self._connection.close()

    def held(self):
        """True while nobody else can have the lock. The sidecar and we read one
        clock, so an answer that was delayed on its way deceives nobody."""
        return not self.lost.is_set() and time.clock_gettime(time.CLOCK_BOOTTIME) < self._valid_until

    def _read_event(self):
        """Reads one event and returns its name; empty at the end of the stream."""
        name = ""
        for raw in self._answer:
            line = raw.decode().rstrip("\r\n")
            if line.startswith("event: "):
                name = line[len("event: "):]
            elif line.startswith("data: "):
                data = json.loads(line[len("data: "):])
                self._valid_until = data["valid_until_boottime_ms"] / 1000
            elif line == "" and name:
                return name
        return ""

    def _follow(self):
        try:
            while self._read_event() not in ("lost", "released", ""):
                pass
        except (OSError, ValueError, http.client.HTTPException):
            pass  # the connection has ended: so has the lock
        self.lost.set()


def main():
    key, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    try:
        with Lock(key, wait="30s", ttl="10s", note="worker.py") as lock:
            print("held", lock.fencing_token, flush=True)
            for _ in range(steps):
                if not lock.held():
                    print("lost", flush=True)
                    return 76
                lock.lost.wait(0.05)  # a piece of work
            print("done", flush=True)
            return 0
    except NotAcquired as why:
        print(why, file=sys.stderr)
        return 75


if __name__ == "__main__":
    sys.exit(main())
