#!/bin/sh
# Leader election: runs a command in one pod at a time, for ever. Who leads is
# stopped before anybody else can lead; the others wait in line.
#
#   leader.sh NAME COMMAND…
name=$1
shift
trap 'kill $! 2>/dev/null; wait $!; exit' TERM INT HUP # not a variable, which is set a moment too late
while :; do
	locksidecar exec --ttl 10s --note "leader" "leader/$name" -- "$@" &
	wait $! || sleep 1
done
