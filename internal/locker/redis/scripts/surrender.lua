-- surrender: give back a lock that is ours. A library.

-- failed returns an error as the verdict on a lock, nil for other answers.
local function failed(answer)
  if type(answer) == 'table' and answer.err then
    return '-' .. answer.err
  end
end

-- surrender returns a verdict as in the reply of release.
local function surrender(prefix, key, outlives, token, keep, tombstone)
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
    if err and string.find(err, '-OOM ', 1, true) then
      -- Out of memory refuses SET and allows PEXPIRE: the key ends at the
      -- same time, under the old value. Before Redis 7.0 a position stands in
      -- front.
      err = failed(redis.pcall('PEXPIRE', key, keep))
    end
  end
  if err then
    return err
  end
  redis.pcall('PEXPIRE', prefix .. '#grant:{' .. key .. '}', keep + outlives)
  return 'ok'
end
