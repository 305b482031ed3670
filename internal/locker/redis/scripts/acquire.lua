-- acquire: grant a lock that is free, once for each token.
--
-- KEYS   1 the lock: string, holds the token of whoever has it
--        2 its grant record: hash of fence, since (server µs), note, token
-- ARGV   1 id of the call          2 token
--        3 ms to keep the lock     4 least fence
--        5 not-after, server µs    6 note
--        7 ms by which the record outlives the lock
-- reply  {id, now, 'granted', fence}
--        {id, now, 'held', ms left, value, since, note, 'same' | 'other'}, where
--        'same' says that the record is of the token that is there
--        {id, now, 'late' | 'spent' | 'conflict-type' | 'conflict-ttl'}
--        an error: BADFENCE, nothing was written; NOGRANT, the token is there
--        but its record is not; or one of Redis' own, the lock was not written
--
-- Scripts do not roll back: every check and the fence come before the first
-- write, and the lock is the last write.

local id, token, keep, floor = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)

local function wrong_type(reply)
  return type(reply) == 'table' and reply.err and string.sub(reply.err, 1, 9) == 'WRONGTYPE'
end

if now > tonumber(ARGV[5]) then
  return {id, stamp, 'late'}
end

local value = redis.pcall('GET', KEYS[1])
if wrong_type(value) then
  return {id, stamp, 'conflict-type'}
elseif type(value) == 'table' then
  return value
end
local record = redis.pcall('HMGET', KEYS[2], 'fence', 'since', 'note', 'token')
if wrong_type(record) then
  return {id, stamp, 'conflict-type'}
elseif record.err then
  return record
end

if value == token then
  if record[4] ~= token or not record[1] then
    return redis.error_reply('NOGRANT the lock is ours and the record of its grant is not there')
  end
  return {id, stamp, 'granted', record[1]}
end

if value then
  local left = redis.call('PTTL', KEYS[1])
  if left < 0 then
    return {id, stamp, 'conflict-ttl'}
  end
  local whose = record[4] == value and 'same' or 'other'
  if #value > 1024 then
    value = '' -- not one of ours; nobody needs a large foreign value
  end
  return {id, stamp, 'held', string.format('%.0f', left), value, record[2] or '', record[3] or '', whose}
end

if record[4] == token then
  return {id, stamp, 'spent'}
end

local fence = math.max(now, floor)
if record[1] then
  local last = string.match(record[1], '^%d+$') and tonumber(record[1])
  local year = 31557600 * 1000000
  if not last or last >= 2 ^ 53 or last > fence + year then
    return redis.error_reply('BADFENCE the last fencing token of the lock is not plausible')
  end
  fence = math.max(fence, last + 1)
end
if fence >= 2 ^ 53 then
  return redis.error_reply('BADFENCE the next fencing token of the lock would not be plausible')
end
fence = string.format('%.0f', fence)

local wrote = redis.pcall('HSET', KEYS[2], 'fence', fence, 'since', stamp, 'note', ARGV[6], 'token', token)
if type(wrote) == 'table' and wrote.err then
  return wrote
end
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', keep + ARGV[7]))
wrote = redis.pcall('SET', KEYS[1], token, 'PX', keep)
if wrote.err then
  return wrote
end
return {id, stamp, 'granted', fence}
