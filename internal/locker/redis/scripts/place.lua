-- place: a process's place in line, at the turn of one of its callers. A
-- library, which needs line and front.
--
-- A turn tells of the caller whose it is: its process, number (0 asks for one),
-- rest (the number of the process's next caller, 0 for none), called (the number
-- of this call) and wait (ms that the process waits at most). find keeps it with
-- the line, which then also has
--   mine           our place
--   own            its number while it is our turn
--   rival, rival_place   the first of the others, and its place
--   last           the greatest number that anybody has had
--   known          the same as it is stored, if it is
--   expires        server ms when the line expires; 0: it may be new
--   newest         this call has given a number
--   out            our place has left the sorted set

-- The same as AskIn in package locker, in ms.
local function ask_in(ahead, left)
  if ahead < 2 then
    return math.min(ASK_EVERY, math.max(left + 1, 1))
  end
  return math.max(ASK_EVERY, math.ceil(ahead * ASK_EVERY / 3))
end

-- find reads our place, which has no number if there is none, and that of the
-- first of the others, our rival.
local function find(line, turn)
  line.turn, line.process = turn, turn.process
  local rival = line.first
  if rival == turn.process then
    rival = line.second
  end
  local fields = call('HMGET', line.places, 'last', 'width', 'until', 'at:' .. turn.process, 'at:' .. (rival or ''))
  line.known = fields[1] and tonumber(fields[1])
  line.last = math.max(line.known or 0, turn.number, turn.rest)
  line.width = tonumber(fields[2] or 1)
  line.expires = tonumber(fields[3] or 0)
  line.mine = read_place(fields[4])
  if rival then
    line.rival, line.rival_place = rival, read_place(fields[5])
  end
end

-- take_turn gives a caller without a number its own. What follows is keep or
-- pass.
local function take_turn(line, turn)
  find(line, turn)
  local mine, first = line.mine, turn.number == 0
  if first then
    line.last = line.last + 1
    turn.number = line.last
    line.newest = true
  end
  local own = turn.number
  if turn.rest > 0 and turn.rest < own then
    own = turn.rest
  end
  if mine.number and first and mine.number < own or mine.number and not first and turn.called < mine.called then
    own = mine.number
  end
  if own == turn.number then
    mine.promise = 0 -- whoever it was made for asks now
  end
  line.own = own
end

-- step_out takes our place out of the line, until keep or pass.
local function step_out(line)
  if line.mine.number then
    call('ZREM', line.queue, line.process)
    shift(line, line.process)
    line.out = true
  end
end

-- tidy drops dead places from the front; ours is none.
local function tidy(line)
  if not line.own then
    front().living(line, 0)
  elseif line.rival and dead(line, line.rival_place) then
    step_out(line)
    front().living(line, 0)
  end
end

-- others_first says whether others are before us at a lock that is free, or
-- before anybody who does not wait. If so, the first of them has been woken.
local function others_first(line)
  local rival, place = line.rival, line.rival_place
  if line.own then
    if not rival then
      return false
    elseif not dead(line, place) then
      if behind(line, rival, place) then
        return false
      elseif awaited(line, place) then
        return true
      end
    end
    step_out(line)
  end
  return front().wake(line)
end

-- settle puts our place where its number belongs and returns how many places
-- are before it.
local function settle(line)
  local process, own, before = line.process, line.own, line.mine.number
  if before == own and not line.out then
    for i, whose in ipairs(line.front) do
      if whose == process then
        return i - 1
      end
    end
    local ahead = call('ZRANK', line.queue, process)
    if ahead then
      return ahead
    end
  end
  call('ZADD', line.queue, own, process)
  shift(line, process)
  if #line.front == 0 then
    line.expires = 0 -- a set that was emptied comes back without a time to live
  end
  line.moved = line.moved or before ~= nil and before < own
  local ahead
  if line.newest and own == line.last and (line.known or not line.rival) then
    ahead = line.all and #line.front or call('ZCARD', line.queue) - 1 -- nobody has a greater number
    line.length = ahead + 1
  else
    ahead = call('ZRANK', line.queue, process)
  end
  if ahead <= #line.front then
    table.insert(line.front, ahead + 1, process)
  end
  return ahead
end

-- promise stores our place, which is to ask again in ms, and has the line live
-- for longer than the wait.
local function promise(line, again)
  local mine, turn, ms = line.mine, line.turn, line.ms
  mine.number, mine.woken = line.own, 0
  mine.promise = math.max(mine.promise, ms + again + DEAD_AFTER)
  mine.ends = math.max(mine.ends, ms + turn.wait)
  mine.called = math.max(mine.called, turn.called)
  if line.expires < ms + turn.wait + SLACK / 2 then
    local left = math.max(line.expires - ms, turn.wait + SLACK)
    write_place(line, line.process, mine, 'last', line.last, 'until', ms + left)
    call('PEXPIRE', line.queue, left)
    call('PEXPIRE', line.places, left)
  elseif line.last ~= line.known then
    write_place(line, line.process, mine, 'last', line.last)
  else
    write_place(line, line.process, mine)
  end
end

-- keep takes or keeps our place, while the lock is held and ends after left
-- ms, or is free for others, without left. It returns how many are before us,
-- and in how many ms to ask again.
local function keep(line, left)
  local ahead = settle(line)
  local again
  if left or ahead == 0 then
    again = ask_in(ahead, left or 0)
  else
    local first, place = whose_at(line, 0), line.rival_place -- it was woken
    if first ~= line.rival then
      place = place_of(line, first)
    end
    again = math.max(1, place.woken + DEAD_AFTER + 1 - line.ms)
  end
  promise(line, again)
  return ahead, again
end

-- pass gives our place to our next caller, or up, as the lock is granted for
-- left ms.
local function pass(line, left)
  if line.turn.rest > 0 then
    line.own = line.turn.rest
    promise(line, ask_in(settle(line), left))
  elseif line.mine.number then
    if not line.out then
      remove(line, line.process)
    end
    call('HDEL', line.places, 'at:' .. line.process)
  end
end

-- leave takes the turn's caller out of line, or all of its process if it has no
-- number, unless a later call has been here; it says whether it has. It ends the
-- turn.
local function leave(line, turn)
  find(line, turn)
  local mine = line.mine
  if not mine.number or mine.called > turn.called or turn.number ~= 0 and turn.number ~= mine.number then
    return false
  end
  pass(line, ASK_EVERY)
  line.own = nil
  return true
end
