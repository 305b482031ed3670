-- handover: give back a lock that is ours and claim it in the same step for
-- another caller of this process, who waits. Needs claim, surrender and freed.
--
-- KEYS   the lock, and it alone; see renew
-- ARGV   1 id of the call   2 prefix of all names   3 ms by which the record
--        outlives the lock
--        4 token   5 ms for which the key is to stay taken   6 tombstone
--        from 7 on the claim: acquire's arguments from 3 on
-- reply  {id, now, verdict, outcome…}: the verdict as in release; the outcome
--        as in acquire, though never a new grant without the verdict 'ok', or
--        '-' followed by the error that the claim got

local prefix, outlives, token, keep, tombstone = unpack(ARGV, 2, 6)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)

-- Sent again after it was carried out, it says so again.
local verdict = 'ok'
if redis.pcall('GET', KEYS[1]) ~= ARGV[7] then
  verdict = surrender(prefix, KEYS[1], outlives, token, keep, tombstone)
end
local outcome = claim(verdict == 'ok', KEYS[1], record_of(prefix, KEYS[1]), now, stamp, prefix, unpack(ARGV, 7))
if verdict ~= 'ok' then
  local refused = demoted()
  if refused then
    return refused
  end
end
if outcome.err then
  outcome = {'-' .. outcome.err}
end
if verdict == 'ok' and keep == '0' and outcome[1] ~= 'granted' and outcome[1] ~= 'queued' then
  call_next(freed, prefix, KEYS[1], now)
end
return {ARGV[1], stamp, verdict, unpack(outcome)}
