#!/bin/bash
# Runs a command while curl holds a lock for it. The lock lives as long as
# curl's connection, and so no longer than the container. Where the image has
# locksidecar, "locksidecar exec" does more: it also ends what the command has
# started, and the command itself if the script is killed.
#
#   bound.sh KEY COMMAND…
set -uo pipefail
url=${LOCKSIDECAR_URL:-http://localhost:5625}
key=$1
shift

exec 3< <(exec curl -sSN --fail-with-body -d bind=connection -d "wait=${WAIT:-30s}" "$url/locks/$key")
stream=$!
trap 'kill "${work:-$!}" 2>/dev/null' TERM INT # before there is work, that is curl

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
"$@" 3<&- &
work=$!
{
	while next_event && [ "$event" != lost ]; do :; done
	echo "the lock is lost: stopping" >&2
	kill "$work"
} &
watcher=$!

wait "$work"
code=$?
while kill -0 "$work" 2>/dev/null; do # a signal has ended the wait, and the work tidies up
	wait "$work"
	code=$?
done
kill "$watcher" "$stream" 2>/dev/null # which gives the lock back
exit "$code"
