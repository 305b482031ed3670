#!/bin/bash
# Runs a command while curl holds a lock for it. The lock lives as long as
# curl's connection, and so no longer than the container. Where the image has
# locksidecar, "locksidecar exec" does more: it also ends what the command has
# started, and the command itself if the script is killed (kill -9), after which
# curl here goes on holding the lock.
#
#   bound.sh KEY COMMAND…
set -uo pipefail
url=${LOCKSIDECAR_URL:-http://localhost:5625}
key=$1
shift

# A signal tells the command to end, and the lock lasts until it has. Before there
# is a command it is curl that ends, which leaves the line.
stage=begins stopped=
end() {
	stopped=1
	case $stage in
	waits) kill -KILL "$stream" ;;
	works) kill "$work" ;;
	esac 2>/dev/null
}
trap end TERM INT HUP

exec 3< <(
	trap '' TERM INT HUP # which may be for all of us
	exec curl -sSN --fail-with-body -d bind=connection -d "wait=${WAIT:-30s}" "$url/locks/$key"
)
stream=$!
stage=waits
[ -z "$stopped" ] || end

# next_event reads up to the next event. The end of the stream means not held.
next_event() {
	local line
	while IFS= read -r -u 3 line; do
		case $line in
		"event: "*) event=${line#event: } && return 0 ;;
		"{"*) echo "$line" >&2 ;; # why the lock was not granted
		esac
	done
	return 1
}

next_event || exit 75
stage=starts
{ [ -z "$stopped" ] || exit 75; exec "$@"; } 3<&- &
work=$!
stage=works
[ -z "$stopped" ] || end
{
	trap '' TERM INT HUP
	while next_event && [ "$event" != lost ]; do :; done
	echo "the lock is lost: stopping" >&2
	kill "$work"
} &
watcher=$!

while wait "$work"; kill -0 "$work" 2>/dev/null; do :; done # a signal ends a wait, not the work
wait "$work"
code=$?
kill -KILL "$watcher" "$stream" 2>/dev/null # which gives the lock back
exit "$code"
