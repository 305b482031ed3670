-- mark: see that the server has a guard's marker, and tell for how long it grants
-- nothing. Needs common and guard.
--
-- KEYS   any name of ours
-- ARGV   1 id of the call   2 prefix of all names   3 the guard, see there
-- reply  {id, now, ms}
--        an error: GUARDS, other sidecars wait for another time; NOGUARD; or one
--        of Redis' own

local id, prefix, run = unpack(ARGV)
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stamp = string.format('%.0f', now)
local done, left = pcall(guard, prefix, now, stamp, run)
if not done then
  local text = tostring(left)
  return redis.error_reply(string.match(text, '^%-?(%u+ .*)$') or 'ERR ' .. text)
end
return demoted() or {id, stamp, left}
