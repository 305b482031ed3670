-- line: those who wait for a lock, in their order of arrival. A library, which
-- stands before the scripts that need it.
--
-- A place in line is a process, however many of its callers wait. With the
-- prefix P and the lock's key:
--   P#queue:{lock}     sorted set of the processes by arrival number
--   P#place:{lock}     hash: 'last', the last number given; 'width', how many
--                      places are woken together, if that is not 1; and for
--                      each process 'at:<process>', which is 'number promise
--                      ends woken called': its arrival number; by when it is to
--                      have asked again, when its wait ends, when it was woken
--                      (0: it has asked since), all in server ms; and the number
--                      of its latest call
--   P#wake:<process>   channel; a message is 'w' (wake up) or 'n' (your place is
--                      among the first two) and the lock's key without P
-- Set and hash expire after the longest wait. They are not declared as keys:
-- mostly they do not exist, and see renew for what that does in a cluster.

local ASK_EVERY, DEAD_AFTER = 1000, 1000 -- ms; the same as in package locker
local SLACK = 10000 -- ms by which a line outlives the longest wait, or half of it
local MOST = 128 -- places that one call drops, or wakes, at most

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

-- open_line returns the line for a lock. now is in server µs. turn is nil, or
-- tells of the caller who waits and whose turn it is: its process, number (0 asks
-- for one), rest (the number of the process's next caller, 0 for none), called
-- (the number of this call) and wait (ms that the process waits at most).
-- Functions of a line may raise the text of an error reply.
local function open_line(prefix, lock, now, turn)
  local queue = prefix .. '#queue:{' .. lock .. '}'
  local places = prefix .. '#place:{' .. lock .. '}'
  local ms = math.floor(now / 1000)
  local budget = MOST
  local before = call('ZRANGE', queue, 0, 1)
  local head = before[1] -- who is first, as long as that is known
  local moved = false -- by this call, others have come nearer
  local woken = {} -- by this call
  local width -- how many to wake, once that is known
  local mine, own -- our place, and its number while it is our turn
  local last, known -- the greatest number that anybody has had, and whether it was stored

  -- read returns what is stored of a place; without a number, there is none.
  local function read(text)
    local number, promise, ends, at, called = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
    return {
      number = tonumber(number), promise = tonumber(promise) or 0, ends = tonumber(ends) or 0,
      woken = tonumber(at) or 0, called = tonumber(called) or 0,
    }
  end

  local function write(whose, place, ...)
    call('HSET', places, 'at:' .. whose, string.format('%.0f %.0f %.0f %.0f %.0f',
      place.number, place.promise, place.ends, place.woken, place.called), ...)
  end

  -- A mark from the future was set before the clock stepped back, and counts
  -- for nothing.
  local function silent(place)
    return place.woken > 0 and ms > place.woken + DEAD_AFTER
  end
  local function awaited(place)
    return place.woken > 0 and ms >= place.woken and not silent(place)
  end

  local function dead(place)
    return ms > place.promise or ms > place.ends or silent(place)
  end

  local function remove(whose)
    call('ZREM', queue, whose)
    head, moved = nil, true
  end

  local function drop(whose, place)
    budget = budget - 1
    if place.woken > 0 then
      width = math.min(2 * width, MOST)
      call('HSET', places, 'width', width)
    end
    remove(whose)
    call('HDEL', places, 'at:' .. whose)
  end

  -- living returns the place at the index, after dropping dead ones there. It is
  -- a dead one once enough have been dropped.
  local function living(index)
    while true do
      local whose = index == 0 and head or call('ZRANGE', queue, index, index)[1]
      if not whose then
        return nil
      end
      local fields = call('HMGET', places, 'at:' .. whose, 'width')
      local place = read(fields[1])
      width = tonumber(fields[2] or 1)
      if not dead(place) or budget == 0 then
        return whose, place
      end
      drop(whose, place)
    end
  end

  -- publish returns how many listen; -1 if we may not know.
  local function publish(whose, kind)
    local receivers = redis.pcall('PUBLISH', prefix .. '#wake:' .. whose, kind .. string.sub(lock, #prefix + 1))
    return type(receivers) == 'number' and receivers or -1
  end

  -- outlast has the line live for longer than ms to come. Either key may be new
  -- and without a time to live; if the queue is, nobody else waits.
  local function outlast(wait)
    if known and call('PTTL', queue) >= wait + SLACK / 2 then
      return
    end
    local left = string.format('%.0f', math.max(call('PTTL', queue), wait + SLACK))
    call('PEXPIRE', queue, left)
    call('PEXPIRE', places, left)
  end

  -- The same as AskIn in package locker, in ms.
  local function ask_in(ahead, left)
    if ahead < 2 then
      return math.min(ASK_EVERY, math.max(left + 1, 1))
    end
    return math.max(ASK_EVERY, math.ceil(ahead * ASK_EVERY / 3))
  end

  -- store puts our place into the line, which is to ask again when ask, called
  -- with the number of those before it, says; it returns that number and ms.
  local function store(ask)
    call('ZADD', queue, string.format('%.0f', own), turn.process)
    head = nil
    local ahead = call('ZRANK', queue, turn.process)
    local again = ask(ahead)
    mine.number, mine.woken = own, 0
    mine.promise = math.max(mine.promise, ms + again + DEAD_AFTER)
    mine.ends = math.max(mine.ends, ms + turn.wait)
    mine.called = math.max(mine.called, turn.called)
    write(turn.process, mine, 'last', string.format('%.0f', last))
    outlast(turn.wait)
    return ahead, again
  end

  -- find reads our place, which has no number if there is none.
  local function find()
    local fields = call('HMGET', places, 'at:' .. turn.process, 'last', 'width')
    mine, known, width = read(fields[1]), fields[2], tonumber(fields[3] or 1)
    last = math.max(tonumber(known or 0), turn.number, turn.rest)
  end

  local line = {}

  -- step_out takes our place out of the line, until keep or pass, and gives a
  -- caller without a number its own.
  function line.step_out()
    find()
    local first = turn.number == 0
    if first then
      last = last + 1
      turn.number = last
    end
    own = turn.rest > 0 and math.min(turn.number, turn.rest) or turn.number
    if mine.number then
      remove(turn.process)
      if first then
        own = math.min(own, mine.number)
      elseif turn.called < mine.called then
        own = mine.number
      end
    end
    if own == turn.number then
      mine.promise = 0 -- whoever it was made for asks now
    end
  end

  -- tidy drops dead places from the front.
  function line.tidy()
    living(0)
  end

  -- wake wakes the first place and says whether there is one. Places whose
  -- process listens no more are dropped. As long as those who are woken stay
  -- silent, more are woken each time. If it is our turn, only those before us
  -- count. Who was woken and may yet ask is woken again only if the lock has
  -- become free again, and gets no more time by it.
  function line.wake(freed)
    local index, most = 0, nil
    repeat
      local whose, place = living(index)
      local number = place and place.number or 0
      local behind = own and (number > own or number == own and whose > turn.process)
      if not whose or index == 0 and behind then
        return index > 0
      elseif dead(place) or awaited(place) and not freed then
        if index == 0 then
          return true
        end
        index = index + 1
      elseif publish(whose, 'w') == 0 and budget > 0 then
        drop(whose, place)
      else
        if not awaited(place) then
          place.woken = ms
          write(whose, place)
        end
        woken[whose] = true
        index = index + 1
      end
      most = index > 0 and (most or width)
    until most and index >= most
    return true
  end

  -- keep takes or keeps our place, while the lock is held and ends after left
  -- ms, or is free for others, without left. It returns how many are before us,
  -- and in how many ms to ask again.
  function line.keep(left)
    return store(function(ahead)
      if left then
        return ask_in(ahead, left)
      elseif ahead == 0 then
        return ask_in(0, 0)
      end
      local first = call('ZRANGE', queue, 0, 0)[1] -- it was woken
      return math.max(1, read(call('HGET', places, 'at:' .. first)).woken + DEAD_AFTER + 1 - ms)
    end)
  end

  -- ours says whether our place is the caller's, and not that of an earlier one.
  function line.ours()
    return own == turn.number
  end

  -- pass gives our place to our next caller, or up, as the lock is granted for
  -- left ms.
  function line.pass(left)
    if turn.rest > 0 then
      own = turn.rest
      store(function(ahead) return ask_in(ahead, left) end)
    else
      call('HDEL', places, 'at:' .. turn.process)
    end
  end

  -- narrow has the next waking wake one place again.
  function line.narrow()
    if width and width > 1 then
      call('HDEL', places, 'width')
    end
  end

  -- leave takes our caller out of line, or all of ours if it has no number,
  -- unless a later call has been here; it says whether it has. It ends the turn.
  function line.leave()
    find()
    if not mine.number or mine.called > turn.called or turn.number ~= 0 and turn.number ~= mine.number then
      return false
    end
    remove(turn.process)
    line.pass(ASK_EVERY)
    own = nil
    return true
  end

  -- tell has those who have come to be among the first two by this call ask
  -- more often. Our own callers know.
  function line.tell()
    if not moved then
      return
    end
    for _, whose in ipairs(call('ZRANGE', queue, 0, 1)) do
      if whose ~= before[1] and whose ~= before[2] and not woken[whose] and not (turn and whose == turn.process) then
        publish(whose, 'n')
      end
    end
  end

  function line.length()
    return string.format('%.0f', call('ZCARD', queue))
  end

  -- living_length is length without the dead places at the front. It drops
  -- none.
  function line.living_length()
    local dead_heads = 0
    for _, whose in ipairs(call('ZRANGE', queue, 0, MOST - 1)) do
      if not dead(read(call('HGET', places, 'at:' .. whose))) then
        break
      end
      dead_heads = dead_heads + 1
    end
    return string.format('%.0f', call('ZCARD', queue) - dead_heads)
  end

  return line
end

-- call_next wakes the first in line for a lock that has become free. It never
-- fails: whoever is not woken asks by itself.
local function call_next(prefix, lock, now)
  if line_length(prefix, lock) == 0 then
    return
  end
  pcall(function()
    local line = open_line(prefix, lock, now)
    line.wake(true)
    line.tell()
  end)
end
