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
