-- common: what other libraries need. A library, which stands before the scripts
-- that need it.

-- call is redis.call whose error is the text of the reply in every version of
-- Redis.
local function call(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    error(reply.err, 0)
  end
  return reply
end

-- demoted returns the error with which a replica refuses writes, and nothing on a
-- master. Whoever answers without a write has to ask: what a replica has to say
-- is old. No key of ours has such a name, so there is nothing to delete.
local function demoted()
  local key = KEYS[1]
  local reply = key and redis.pcall('DEL', key .. '{' .. key .. '}')
  if type(reply) == 'table' and string.find(reply.err, 'READONLY', 1, true) then
    return reply
  end
end

-- record_of returns the name of a lock's grant record.
local function record_of(prefix, lock)
  return prefix .. '#grant:{' .. lock .. '}'
end

-- line_length returns how many places the line for a lock has; 0 also if it
-- cannot be read. It costs next to nothing where nobody waits.
local function line_length(prefix, lock)
  local length = redis.pcall('ZCARD', prefix .. '#queue:{' .. lock .. '}')
  return type(length) == 'number' and length or 0
end

-- call_next wakes the first in line for a lock that has become free. It never
-- fails: whoever is not woken asks by itself. freed is the function of that name.
local function call_next(freed, prefix, lock, now)
  if line_length(prefix, lock) > 0 then
    pcall(freed, prefix, lock, now)
  end
end
