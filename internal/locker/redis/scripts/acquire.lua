-- acquire: grant a lock that is free, once for each token, or wait for it.
-- Needs claim.
--
-- KEYS   1 the lock: string, holds the token of whoever has it
--        2 its grant record: hash of fence, since (server µs), note, token
-- ARGV   1 id of the call          2 prefix of all names
--        3 token                   4 ms to keep the lock
--        5 least fence             6 not-after, server µs
--        7 note                    8 ms by which the record outlives the lock
--        9 the process that waits, empty to try once; and if it waits
--        10 arrival number of its caller, 0 asks for one
--        11 arrival number of its next caller, 0 for none
--        12 number of the call     13 ms that the process waits at most
-- reply  {id, now, 'granted', fence}
--        {id, now, 'held', ms left, value, since, note, 'same' | 'other', length
--        of the line}, where 'same' says that the record is of the token that
--        is there, and one that waits also gets its number, how many places are
--        before its own, and the ms after which to ask again
--        {id, now, 'queued', length, …}: free, but others are before us
--        {id, now, 'late' | 'spent' | 'conflict-type' | 'conflict-ttl'}
--        an error: BADFENCE, nothing was written; NOGRANT, the token is there
--        but its record is not; or one of Redis' own, the lock was not written

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)
local outcome = claim(true, KEYS[1], KEYS[2], now, stamp, unpack(ARGV, 2))
if outcome.err then
  return outcome
end
return {ARGV[1], stamp, unpack(outcome)}
