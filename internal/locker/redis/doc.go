// Package redis is the backend on one Redis authority: a server, the master
// that Sentinels name, or a Redis Cluster, of version 6.2 or later.
//
// # Layout
//
// With the prefix P, the lock of a key is
//
//	P<key>            string with a time to live: the holder's token
//	P#grant:{P<key>}  hash: fence, since (server µs), note, token of the last
//	                  grant; it outlives the lease, or the release, by 5 minutes
//	P#queue:{P<key>}  sorted set: the processes that wait, by arrival number
//	P#place:{P<key>}  hash: what each of them has promised, and the last number;
//	                  both expire soon after the longest wait
//	P#guard           string: which run of the server has had all of its data
//	                  since when; only with Config.RestartGuard
//	P#wake:<process>  channel, on which a process that waits is woken
//
// The string alone is what redsync, redislock and hand-written SET NX use too,
// so they and this backend exclude each other. A token begins with the
// holder's label in clear; a key kept taken for a minimum hold has a tombstone
// in its place, which is nobody's token.
//
// # Permissions
//
// docs/operations.md has the exact ACL line for each [Kind], which the tests
// read there and use. Config.RestartGuard needs INFO besides; with that and
// CONFIG GET [Backend.Report] can tell of settings that endanger locks. Without the channels, PUBLISH or
// SUBSCRIBE, those who wait are not woken and get their locks by asking every
// now and then.
//
// # Waiting
//
// A release wakes the process that is first in line, and it alone. Wake-ups
// save time and nothing else: only the script that grants decides whose turn it
// is, on the server's clock, and a place whose process listens no more, or stays
// silent, is dropped by whichever script finds it at the front. There is no
// dependence on keyspace notifications.
//
// # Outcomes
//
// An error reply of Redis, and a failure before anything was sent, is a
// certain no; see replyTable. After that it is unknown what became of a
// request. It cannot be executed for ever, though: every request that takes or
// extends a lock carries a time on the server's own clock after which the
// server refuses it; see serverClock.
//
// The driver is trusted with the protocol alone. Connections are opened here,
// it never retries, and nobody waits for it longer than their own deadline.
package redis
