-- break: put a tombstone in the place of a token, for as long as the token had
-- left. Who waits is told nothing: the lock is not free. Needs common.
--
-- KEYS   1 the lock
-- ARGV   1 id of the call   2 token that must be there   3 tombstone
-- reply  {id, now, 'ok', ms left}, also if the tombstone is there already
--        {id, now, 'taken' | 'gone' | 'conflict'}: another value is there; none
--        is; what is there is not a lock, or has no time to live. Nothing was
--        changed

local id, token, tombstone = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local stamp = string.format('%.0f', time[1] * 1000000 + time[2])

local value = redis.pcall('GET', KEYS[1])
if not value then
  return demoted() or {id, stamp, 'gone'}
elseif type(value) == 'table' then
  if string.sub(value.err, 1, 9) == 'WRONGTYPE' then
    return demoted() or {id, stamp, 'conflict'}
  end
  return value
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  return demoted() or {id, stamp, 'conflict'}
elseif value ~= token and value ~= tombstone then
  return demoted() or {id, stamp, 'taken'}
end
if value == tombstone then
  return demoted() or {id, stamp, 'ok', left}
end
local wrote = redis.pcall('SET', KEYS[1], tombstone, 'KEEPTTL')
if wrote.err then
  return wrote
end
return demoted() or {id, stamp, 'ok', left}
