-- doubt: have the marker of a server that may have lost data though it does not
-- tell be made anew, see guard. Needs common.
--
-- KEYS   the marker
-- ARGV   1 id of the call   2 the guard, see there
-- reply  {id, now}
--        an error of Redis' own: the marker is as it was

local id, guard = unpack(ARGV)
local time = redis.call('TIME')
local marker = redis.pcall('GET', KEYS[1])
if type(marker) == 'string' then
  local wrote = redis.pcall('SET', KEYS[1], (string.gsub(marker, '^%x+', '0'))) -- of no run
  if type(wrote) == 'table' and wrote.err and string.match(marker, ' %d+ ') == string.match(guard, ' %d+$') .. ' ' then
    wrote = redis.pcall('DEL', KEYS[1]) -- for which memory is never short; nothing is lost by it but what we know
  end
  if type(wrote) == 'table' and wrote.err then
    return wrote
  end
end
return demoted() or {id, string.format('%.0f', time[1] * 1000000 + time[2])}
