#!/usr/bin/env python3
"""Several workers in one pod, who share a sidecar: each has a handle.

    workers.py KEY WORKERS

Each worker names itself by an owner when it asks, and from then on by the
fencing token of its grant. So none can give back, extend or trust the lock of
another, although all talk to one sidecar.
"""
import json
import os
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request

URL = os.environ.get("LOCKSIDECAR_URL", "http://localhost:5625")


def call(method, path, **parameters):
    """Sends a request and returns its status and answer."""
    query = urllib.parse.urlencode(parameters)
    request = urllib.request.Request(f"{URL}{path}?{query}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.loads(refusal.read() or b"null")


def work(path, name, report):
    status, grant = call("POST", path, owner=name, wait="30s", ttl="10s")
    if status not in (200, 201):
        report(f"{name} not acquired: {grant['code']}")
        return
    handle = grant["fencing_token"]
    report(f"{name} enters {handle}")
    # What another worker of this pod must not be able to do.
    status, problem = call("DELETE", path, owner="somebody-else")
    report(f"{name} stranger gets {status} {problem['code']}")
    status, _ = call("GET", path, fencing_token=handle)
    report(f"{name} asks {status}")
    report(f"{name} leaves {handle}")
    status, _ = call("DELETE", path, fencing_token=handle)
    if status != 204:
        report(f"{name} had lost it: {status}")


def main():
    path, count = "/locks/" + urllib.parse.quote(sys.argv[1]), int(sys.argv[2])
    told = threading.Lock()

    def report(line):
        with told:
            print(line, flush=True)

    workers = [threading.Thread(target=work, args=(path, f"worker-{n}", report)) for n in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
