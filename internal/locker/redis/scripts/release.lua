-- release: give back locks that are ours, and wake those who are first in line
-- for them. Needs surrender and freed.
--
-- KEYS   the locks, and they alone; see renew
-- ARGV   1 id of the call   2 prefix of all names   3 ms by which the grant
--        record outlives the lock
--        then for each lock: token, ms for which the key is to stay taken (0
--        frees it), tombstone to leave there meanwhile (if it is empty, a lock
--        that is freed wakes nobody)
-- reply  {id, now, verdict…}, a verdict for each lock in order: 'ok',
--        'taken' (another value is there), 'gone', or '-' followed by the
--        error that this lock got, in which case nothing was changed

local prefix, outlives = ARGV[2], ARGV[3]
local ours = true -- all of them
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local reply = {ARGV[1], string.format('%.0f', now)}

for i, key in ipairs(KEYS) do
  local at = 3 * i + 1
  local verdict = surrender(prefix, key, outlives, ARGV[at], ARGV[at + 1], ARGV[at + 2])
  if verdict == 'ok' and ARGV[at + 1] == '0' and ARGV[at + 2] ~= '' then
    call_next(freed, prefix, key, now)
  end
  ours = ours and verdict == 'ok'
  reply[i + 2] = verdict
end
return not ours and demoted() or reply
