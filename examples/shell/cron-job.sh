#!/bin/sh
# A cron job that every pod or machine starts, and one runs: the others find
# the lock taken and end well. --min-hold keeps it taken for a while after a
# quick run, for those whose clock is late; --max-hold ends a run that hangs.
#
#   cron-job.sh ./report.sh --of yesterday
set -eu
exec locksidecar exec --nonblock --conflict-exit-code 0 \
	--min-hold 30s --max-hold 1h --note "nightly report of ${HOSTNAME:-somebody}" \
	nightly-report -- "$@"
