-- annotate: replace the note of a lock that is ours. Needs common.
--
-- KEYS   the lock, and it alone; see renew
-- ARGV   1 id of the call   2 prefix of all names   3 token   4 note
-- reply  {id, now, 'ok' | 'taken' | 'gone'}
--        an error: NORECORD, the lock is ours and has no record to write into;
--        or one of Redis' own. Nothing was written

local id, token, record_key = ARGV[1], ARGV[3], record_of(ARGV[2], KEYS[1])
local time = redis.call('TIME')
local stamp = string.format('%.0f', time[1] * 1000000 + time[2])

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
local record = redis.pcall('HMGET', record_key, 'token')
if record.err or record[1] ~= token then
  return redis.error_reply('NORECORD the lock has no grant record')
end
local wrote = redis.pcall('HSET', record_key, 'note', ARGV[4])
if type(wrote) == 'table' and wrote.err then
  return wrote
end
return {id, stamp, 'ok'}
