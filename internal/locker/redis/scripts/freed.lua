-- freed: wake the first in line. A function of the prefix of all names, the lock
-- and server µs, which needs line and front.

local line = open_line(...)
-- The first is mostly alive and listens; front does the same for all cases.
local first = line.first
local fields = call('HMGET', line.places, 'at:' .. first, 'width')
local place = read_place(fields[1])
if fields[2] or place.woken > 0 or dead(line, place) or publish(line, first, 'w') == 0 then
  front().wake(line, true)
  tell(line)
else
  place.woken = line.ms
  write_place(line, first, place)
end
