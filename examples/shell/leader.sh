#!/bin/sh
# Leader election: runs a command in one pod at a time, for ever. Who leads is
# stopped before anybody else can lead; the others wait in line.
#
#   leader.sh NAME COMMAND…
name=$1
shift
trap 'kill "$lead"; wait "$lead"; exit' TERM INT
while :; do
	locksidecar exec --ttl 10s --note "leader" "leader/$name" -- "$@" &
	lead=$!
	wait "$lead" || sleep 1
done
