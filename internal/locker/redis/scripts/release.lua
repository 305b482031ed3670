-- release: give back locks that are ours.
--
-- KEYS   the locks, and they alone; see renew
-- ARGV   1 id of the call   2 what precedes a lock's key in the name of its
--        grant record   3 ms by which the record outlives the lock
--        then for each lock: token, ms for which the key is to stay taken (0
--        frees it), tombstone to leave there meanwhile
-- reply  {id, now, verdict…}, a verdict for each lock in order: 'ok',
--        'taken' (another value is there), 'gone', or '-' followed by the
--        error that this lock got, in which case nothing was changed

local id, companion, outlives = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local reply = {id, string.format('%.0f', time[1] * 1000000 + time[2])}

local function failed(answer)
  if type(answer) == 'table' and answer.err then
    return '-' .. answer.err
  end
end

local function release(key, token, keep, tombstone)
  local value = redis.pcall('GET', key)
  local err = failed(value)
  if err then
    return string.sub(err, 1, 10) == '-WRONGTYPE' and 'taken' or err
  elseif not value then
    return 'gone'
  elseif value ~= token then
    return 'taken'
  end
  if keep == '0' then
    err = failed(redis.pcall('DEL', key))
  else
    err = failed(redis.pcall('SET', key, tombstone, 'PX', keep))
    if err and string.find(err, 'OOM command not allowed', 1, true) then
      -- Out of memory refuses SET and allows PEXPIRE: the key ends at the
      -- same time, under the old value.
      err = failed(redis.pcall('PEXPIRE', key, keep))
    end
  end
  if err then
    return err
  end
  redis.pcall('PEXPIRE', companion .. key .. '}', string.format('%.0f', keep + outlives))
  return 'ok'
end

for i, key in ipairs(KEYS) do
  local at = 3 * i + 1
  reply[i + 2] = release(key, ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
return reply
