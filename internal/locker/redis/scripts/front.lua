-- front: drop and wake those who are first in line. A function that needs line,
-- for when more is to be done than to look at a place.

local MOST = 128 -- places that one call drops, or wakes, at most
local budget = MOST

local function drop(line, whose, place)
  budget = budget - 1
  if place.woken > 0 then
    line.width = math.min(2 * line.width, MOST)
    call('HSET', line.places, 'width', line.width)
  end
  remove(line, whose)
  call('HDEL', line.places, 'at:' .. whose)
end

-- living returns the place at the index, after dropping dead ones there. It is
-- a dead one once enough have been dropped.
local function living(line, index)
  while true do
    local whose = whose_at(line, index)
    if not whose then
      return nil
    end
    local place = line.rival_place
    if whose ~= line.rival then
      local fields = call('HMGET', line.places, 'at:' .. whose, 'width')
      place = read_place(fields[1])
      line.width = tonumber(fields[2] or 1)
    end
    if not dead(line, place) or budget == 0 then
      return whose, place
    end
    drop(line, whose, place)
  end
end

-- wake wakes the first place and says whether there is one. Places whose
-- process listens no more are dropped. As long as those who are woken stay
-- silent, more are woken each time. If it is our turn, only those before us
-- count. Who was woken and may yet ask is woken again only if the lock has
-- become free again, and gets no more time by it.
local function wake(line, freed)
  local index, most = 0, nil
  repeat
    local whose, place = living(line, index)
    if not whose or index == 0 and behind(line, whose, place) then
      return index > 0
    elseif dead(line, place) or awaited(line, place) and not freed then
      if index == 0 then
        return true
      end
      index = index + 1
    elseif publish(line, whose, 'w') == 0 and budget > 0 then
      drop(line, whose, place)
    else
      if not awaited(line, place) then
        place.woken = line.ms
        write_place(line, whose, place)
      end
      line.woken = line.woken or {}
      line.woken[whose] = true
      index = index + 1
    end
    most = index > 0 and (most or line.width)
  until most and index >= most
  return true
end

return {living = living, wake = wake}
