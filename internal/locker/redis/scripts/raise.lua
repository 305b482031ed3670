-- raise: raise the fence of a lock that is ours. Needs common.
--
-- KEYS   1 the lock   2 its grant record
-- ARGV   1 id of the call   2 token   3 the least that the fence is to be
--        4 not-after, server µs
-- reply  {id, now, 'ok', fence}: what it is now
--        {id, now, 'taken' | 'gone' | 'late'}
--        an error: NORECORD, the lock is ours and has no record to write into;
--        or one of Redis' own. Nothing was written

local id, token, fence, not_after = unpack(ARGV)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)

if now > tonumber(not_after) then
  return {id, stamp, 'late'}
end
local value = redis.pcall('GET', KEYS[1])
if not value then
  return demoted() or {id, stamp, 'gone'}
elseif type(value) == 'table' then
  if string.sub(value.err, 1, 9) == 'WRONGTYPE' then
    return demoted() or {id, stamp, 'taken'}
  end
  return value
elseif value ~= token then
  return demoted() or {id, stamp, 'taken'}
end
local record = redis.pcall('HMGET', KEYS[2], 'fence', 'token')
if record.err or record[2] ~= token or not tonumber(record[1]) then
  return redis.error_reply('NORECORD the lock has no grant record')
elseif tonumber(record[1]) >= tonumber(fence) then
  return demoted() or {id, stamp, 'ok', record[1]}
end
local wrote = redis.pcall('HSET', KEYS[2], 'fence', fence)
if type(wrote) == 'table' and wrote.err then
  return wrote
end
return {id, stamp, 'ok', fence}
