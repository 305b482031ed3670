-- guard: for how long a server that may have lost data grants nothing. A function
-- of the prefix of all names, server µs, those as text, and the guard: '<run id of
-- the server> <ms>', or '-' if the run id is not known. It returns ms, 0 if the
-- server may grant. Needs common.
--
-- The marker says which run of the server has had all of its data since when, and
-- for how long all sidecars wait if it has not: '<run id> <ms> <since, µs>'. It
-- has no time to live. Data that is lost takes it along, and data that is older
-- than it should be, of a persisted server or of a replica, has another run's.

local prefix, now, stamp, guard = ...
local name = prefix .. '#guard'
if guard == '-' then
  error('NOGUARD the restart guard needs INFO', 0)
end
local run, wait = string.match(guard, '^(%x+) (%d+)$')
local marker = redis.pcall('GET', name)
local marked, agreed, since
if type(marker) == 'string' then
  marked, agreed, since = string.match(marker, '^(%x+) (%d+) (%d+)$')
end
if agreed and agreed ~= wait then
  error('GUARDS another sidecar has the restart guard ' .. agreed .. ' ms', 0)
end
since = tonumber(since)
if marked ~= run or since > now then -- the latter if the clock was set back
  call('SET', name, run .. ' ' .. wait .. ' ' .. stamp)
  since = now
end
return math.max(0, math.ceil((since - now) / 1000 + wait))
