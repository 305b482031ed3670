-- line: those who wait for a lock, in their order of arrival. A library, which
-- needs common; see also place and front.
--
-- A place in line is a process, however many of its callers wait. With the
-- prefix P and the lock's key:
--   P#queue:{lock}     sorted set of the processes by arrival number
--   P#place:{lock}     hash: 'last', the last number given; 'until', the server
--                      ms when the line expires; 'width', how many places are
--                      woken together, if that is not 1; and for
--                      each process 'at:<process>', which is 'number promise
--                      ends woken called': its arrival number; by when it is to
--                      have asked again, when its wait ends, when it was woken
--                      (0: it has asked since), all in server ms; and the number
--                      of its latest call
--   P#wake:<process>   channel; a message is 'w' (wake up) or 'n' (your place is
--                      among the first two) and the lock's key without P
-- Set and hash expire after the longest wait. They are not declared as keys:
-- mostly they do not exist, and see renew for what that does in a cluster.
--
-- A server makes the functions of a script anew whenever it is called, and that
-- costs as much as what they do. So these take the line rather than close over
-- it, and those that are seldom needed are apart, in front.

local ASK_EVERY, DEAD_AFTER = 1000, 1000 -- ms; the same as in package locker
local SLACK = 10000 -- ms by which a line outlives the longest wait, or half of it

-- open_line returns the line for a lock, which the functions from here on take,
-- and may raise the text of an error reply. now is in server µs.
local function open_line(prefix, lock, now)
  local tail = ':{' .. lock .. '}'
  local queue = prefix .. '#queue' .. tail
  local front = call('ZRANGE', queue, '0', '3')
  return {
    prefix = prefix, lock = lock, queue = queue, places = prefix .. '#place' .. tail,
    ms = math.floor(now / 1000),
    front = front, -- the first in line
    all = #front < 4, -- front has the whole line
    first = front[1], second = front[2], -- when the line was opened
    moved = false, -- by this call, others have come nearer
    -- and once they are known: process, whose turn it is; width, how many to wake;
    -- woken, those who have been by this call; length; and see place
  }
end

-- read_place returns what is stored of a place; without a number, there is none.
local function read_place(text)
  local number, promise, ends, woken, called = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  return {
    number = tonumber(number), promise = tonumber(promise) or 0, ends = tonumber(ends) or 0,
    woken = tonumber(woken) or 0, called = tonumber(called) or 0,
  }
end

local function place_of(line, whose)
  return read_place(call('HMGET', line.places, 'at:' .. whose)[1])
end

local function write_place(line, whose, place, ...)
  call('HSET', line.places, 'at:' .. whose, string.format('%.0f %.0f %.0f %.0f %.0f',
    place.number, place.promise, place.ends, place.woken, place.called), ...)
end

-- A mark from the future was set before the clock stepped back, and counts
-- for nothing.
local function awaited(line, place)
  return place.woken > 0 and line.ms >= place.woken and line.ms <= place.woken + DEAD_AFTER
end

local function dead(line, place)
  return line.ms > place.promise or line.ms > place.ends or place.woken > 0 and line.ms > place.woken + DEAD_AFTER
end

-- behind says whether it is our turn and the place is not before us.
local function behind(line, whose, place)
  local own, number = line.own, place.number or 0
  return own and (number > own or number == own and whose > line.process)
end

-- whose_at returns the process at the index.
local function whose_at(line, index)
  local whose = line.front[index + 1]
  if whose or line.all then
    return whose
  end
  return call('ZRANGE', line.queue, index, index)[1]
end

-- shift takes a process out of what is known of the front.
local function shift(line, whose)
  for i, other in ipairs(line.front) do
    if other == whose then
      table.remove(line.front, i)
      return
    end
  end
end

local function remove(line, whose)
  call('ZREM', line.queue, whose)
  shift(line, whose)
  line.moved = true
end

-- publish returns how many listen; -1 if we may not know.
local function publish(line, whose, kind)
  local receivers = redis.pcall('PUBLISH', line.prefix .. '#wake:' .. whose, kind .. string.sub(line.lock, #line.prefix + 1))
  return type(receivers) == 'number' and receivers or -1
end

-- tell has those who have come to be among the first two by this call ask
-- more often, unless they will ask within that time anyway. Our own callers
-- know.
local function tell(line)
  if not line.moved then
    return
  end
  for index = 0, 1 do
    local whose = whose_at(line, index)
    if whose and whose ~= line.first and whose ~= line.second and whose ~= line.process and not (line.woken and line.woken[whose]) then
      local place = place_of(line, whose)
      if place.promise > line.ms + ASK_EVERY + DEAD_AFTER then
        publish(line, whose, 'n')
      end
    end
  end
end

-- length returns how many places the line has.
local function length(line)
  return line.length or line.all and #line.front or call('ZCARD', line.queue)
end
