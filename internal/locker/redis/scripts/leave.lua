-- leave: take a caller out of line, and pass on the wake-up that it may have
-- got. Needs line, front and place.
--
-- KEYS   the lock alone; see renew
-- ARGV   1 id of the call   2 prefix of all names   3 the process
--        4 arrival number of the caller, 0 for all of the process
--        5 arrival number of its next caller, 0 for none   6 number of the call
-- reply  {id, now, 'ok'}

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local left = false
if line_length(ARGV[2], KEYS[1]) > 0 then
  local line = open_line(ARGV[2], KEYS[1], now)
  left = leave(line, {
    process = ARGV[3], number = tonumber(ARGV[4]), rest = tonumber(ARGV[5]),
    called = tonumber(ARGV[6]), wait = 0,
  })
  if left then
    if not redis.pcall('GET', KEYS[1]) then
      front().wake(line)
    end
    tell(line)
  end
end
return not left and demoted() or {ARGV[1], string.format('%.0f', now), 'ok'}
