-- heal: put back a lock that this server has lost. Needs common.
--
-- KEYS   1 the lock   2 its grant record
-- ARGV   1 id of the call       2 token         3 ms to keep the lock
--        4 fence of the grant   5 not-after, server µs
--        6 note                 7 ms by which the record outlives the lock
-- reply  {id, now, 'ok' | 'taken' | 'late'}: 'ok' also if the lock is there, and
--        then nothing was written
--        an error: BADFENCE, nothing was written; or one of Redis' own, the lock
--        was not written

local id, token, keep, fence, not_after, note, outlives = unpack(ARGV)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)

local function heal()
  if now > tonumber(not_after) then
    return 'late'
  end
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' and value.err then
    if string.sub(value.err, 1, 9) == 'WRONGTYPE' then
      return 'taken'
    end
    error(value.err, 0)
  elseif value then
    return value == token and 'ok' or 'taken'
  end
  -- A record that cannot be read is no reason to lose the lock; the write tells.
  local record = redis.pcall('HMGET', KEYS[2], 'fence', 'token', 'since')
  local last = not record.err and tonumber(record[1])
  if last and last >= 2 ^ 53 then
    error('BADFENCE the last fencing token of the lock is not plausible', 0)
  end
  if last and last > tonumber(fence) then
    fence = record[1]
  end
  local since = not record.err and record[2] == token and record[3] or stamp
  call('HSET', KEYS[2], 'fence', fence, 'since', since, 'note', note, 'token', token)
  call('PEXPIRE', KEYS[2], keep + outlives)
  call('SET', KEYS[1], token, 'PX', keep)
  return 'ok', true
end

local done, verdict, wrote = pcall(heal)
if not done then
  local text = tostring(verdict)
  return redis.error_reply(string.match(text, '^%-?(%u+ .*)$') or 'ERR ' .. text)
end
return not wrote and demoted() or {id, stamp, verdict}
