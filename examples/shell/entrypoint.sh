#!/bin/sh
# An entrypoint for a container whose application takes locks under its own
# owner. The sidecar outlives a crash of the application and would go on
# renewing what it held, so the first thing that a new start does is to give
# all of that back.
#
#   OWNER=importer entrypoint.sh ./application
set -eu
url=${LOCKSIDECAR_URL:-http://localhost:5625}
curl -fsS --retry 5 --retry-connrefused --max-time 10 -X DELETE "$url/locks?owner=$OWNER" >&2
exec "$@"
