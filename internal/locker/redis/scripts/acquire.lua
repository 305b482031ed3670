-- acquire: grant a lock that is free, once for each token, or wait for it.
-- Needs claim.
--
-- KEYS   the lock, and it alone (see renew): string, holds the token of whoever
--        has it. Its grant record is a hash of fence, since (server µs), note, token
-- ARGV   1 id of the call          2 prefix of all names
--        3 token                   4 ms to keep the lock
--        5 least fence             6 not-after, server µs
--        7 note                    8 ms by which the record outlives the lock
--        9 the guard, or empty for none
--        10 the process that waits, empty to try once; and if it waits
--        11 arrival number of its caller, 0 asks for one
--        12 arrival number of its next caller, 0 for none
--        13 number of the call     14 ms that the process waits at most
--        15 '1' to overtake whoever is in line; absent or empty otherwise
-- reply  {id, now, 'granted', fence, ms left}: all of those of 4 if it was granted
--        now, the rest of them if it had been before
--        {id, now, 'held', ms left, value, since, note, 'same' | 'other', length
--        of the line}, where 'same' says that the record is of the token that
--        is there, and one that waits also gets its number, how many places are
--        before its own, and the ms after which to ask again
--        {id, now, 'queued', length, …}: free, but others are before us
--        {id, now, 'recovering', ms}: free, but nothing is granted for so long
--        {id, now, 'late' | 'spent' | 'conflict-type' | 'conflict-ttl'}
--        an error: BADFENCE, GUARDS, NOGUARD, nothing was written; NOGRANT, the token is there
--        but its record is not; or one of Redis' own, the lock was not written

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)
local outcome = claim(true, KEYS[1], record_of(ARGV[2], KEYS[1]), now, stamp, unpack(ARGV, 2))
if outcome[1] ~= 'granted' then
  outcome = demoted() or outcome
end
if outcome.err then
  return outcome
end
return {ARGV[1], stamp, unpack(outcome)}
