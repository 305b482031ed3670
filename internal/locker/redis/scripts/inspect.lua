-- inspect: tell who has a lock. It changes nothing. Needs line.
--
-- KEYS   the lock, and it alone; see renew
-- ARGV   1 id of the call   2 prefix of all names
-- reply  {id, now, 'free' | 'unknown', length of the line}
--        {id, now, 'held', ms left, value, since, note, 'same' | 'other', length},
--        where 'same' says that the record is of the token that is there
--        'unknown': what lives there is not a lock, or has no time to live

local MOST = 128 -- places that are looked at

-- living_length returns how many places there are without the dead ones at the
-- front. It drops none.
local function living_length(line)
  local dead_heads = 0
  for _, whose in ipairs(call('ZRANGE', line.queue, 0, MOST - 1)) do
    if not dead(line, place_of(line, whose)) then
      break
    end
    dead_heads = dead_heads + 1
  end
  return call('ZCARD', line.queue) - dead_heads
end

local id = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)

local refused = demoted()
if refused then
  return refused
end
local length = 0
if line_length(ARGV[2], KEYS[1]) > 0 then
  length = living_length(open_line(ARGV[2], KEYS[1], now))
end

local value = redis.pcall('GET', KEYS[1])
if not value then
  return {id, stamp, 'free', length}
elseif type(value) == 'table' then
  if string.sub(value.err, 1, 9) == 'WRONGTYPE' then
    return {id, stamp, 'unknown', length}
  end
  return value
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then
  return {id, stamp, 'unknown', length}
end
local record = redis.pcall('HMGET', record_of(ARGV[2], KEYS[1]), 'since', 'note', 'token')
local whose = record[3] == value and 'same' or 'other'
if #value > 1024 then
  value = '' -- not one of ours; nobody needs a large foreign value
end
return {id, stamp, 'held', left, value, record[1] or '', record[2] or '', whose, length}
