-- renew: extend locks that are ours, or only verify them. It creates no key. Needs
-- common.
--
-- KEYS   the locks, and they alone: a call that declares a companion that does
--        not exist gets TRYAGAIN while a cluster moves the slot
-- ARGV   1 id of the call   2 what precedes a lock's key in the name of its
--        grant record   3 ms by which the record outlives the lock
--        then for each lock: token, ms to keep it from now (0 verifies only),
--        not-after in server µs
-- reply  {id, now, verdict…}, a verdict for each lock in order: 'ok',
--        'taken' (another value is there), 'gone', 'late', or '-' followed by
--        the error that this lock got, in which case it was not extended

local id, companion, outlives = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local reply = {id, string.format('%.0f', now)}

local function failed(answer)
  if type(answer) == 'table' and answer.err then
    return '-' .. answer.err
  end
end

local wrote = true -- for each of them

local function renew(key, token, keep, not_after)
  if now > tonumber(not_after) then
    return 'late'
  end
  local value = redis.pcall('GET', key)
  local err = failed(value)
  if err then
    return string.sub(err, 1, 10) == '-WRONGTYPE' and 'taken' or err
  elseif not value then
    return 'gone'
  elseif value ~= token then
    return 'taken'
  elseif keep == '0' then
    return 'ok'
  end
  local extended = redis.pcall('PEXPIRE', key, keep)
  err = failed(extended)
  if err then
    return err
  elseif extended == 0 then
    return 'gone'
  end
  -- The record is for people and for the next fence; the lock does not need it.
  redis.pcall('PEXPIRE', companion .. key .. '}', keep + outlives)
  return 'ok'
end

for i, key in ipairs(KEYS) do
  local at = 3 * i + 1
  local verdict = renew(key, ARGV[at], ARGV[at + 1], ARGV[at + 2])
  wrote = wrote and verdict == 'ok' and ARGV[at + 1] ~= '0'
  reply[i + 2] = verdict
end
return not wrote and demoted() or reply
