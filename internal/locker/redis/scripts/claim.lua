-- claim: grant a lock that is free, once for each token, or wait for it. A
-- library, which needs common, guard and waiting.
--
-- It returns what stands behind id and now in the replies of acquire. Without
-- may, it grants no lock that is free, as if another were first in line.
--
-- Scripts do not roll back: every check and the fence come before the first
-- write, save that dead places leave the line, and the lock is the last write.

local function wrong_type(reply)
  return type(reply) == 'table' and reply.err and string.sub(reply.err, 1, 9) == 'WRONGTYPE'
end

-- next_fence returns the fence of the next grant, or an error.
local function next_fence(now, floor, last)
  local fence = math.max(now, floor)
  if last then
    local known = string.match(last, '^%d+$') and tonumber(last)
    local year = 31557600 * 1000000
    if not known or known >= 2 ^ 53 or known > fence + year then
      return nil, redis.error_reply('BADFENCE the last fencing token of the lock is not plausible')
    end
    fence = math.max(fence, known + 1)
  end
  if fence >= 2 ^ 53 then
    return nil, redis.error_reply('BADFENCE the next fencing token of the lock would not be plausible')
  end
  return string.format('%.0f', fence)
end

-- line_for returns the line, in which it is the turn's if there is one, and what
-- can be done with it; nil if there is neither line nor turn.
local function line_for(prefix, lock, now, turn)
  if not turn and line_length(prefix, lock) == 0 then
    return nil
  end
  local can = waiting()
  local line = can.open(prefix, lock, now)
  if turn then
    can.take_turn(line, turn)
  end
  return line, can
end

-- refuse ends a reply by what there is to say of the line, if there is one; left
-- are the ms until the lock ends, if it is held.
local function refuse(reply, line, can, turn, left)
  local n = #reply
  if not line then
    reply[n + 1] = 0
    return reply
  end
  if turn then
    reply[n + 3], reply[n + 4] = can.keep(line, left)
    reply[n + 2] = turn.number
  end
  reply[n + 1] = can.length(line)
  can.tell(line)
  return reply
end

local function claim_lock(may, lock, record_key, now, stamp, prefix, token, keep_for, floor, not_after, note, outlives, guarded, process, number, rest, called, wait, overtake)
  if now > tonumber(not_after) then
    return {'late'}
  end

  local value = redis.pcall('GET', lock)
  if wrong_type(value) then
    return {'conflict-type'}
  elseif type(value) == 'table' then
    return value
  end
  local record = redis.pcall('HMGET', record_key, 'fence', 'token', 'since', 'note')
  if wrong_type(record) then
    return {'conflict-type'}
  elseif record.err then
    return record
  end

  if value == token then
    if record[2] ~= token or not record[1] then
      return redis.error_reply('NOGRANT the lock is ours and the record of its grant is not there')
    end
    local left = call('PTTL', lock)
    if left < 0 then
      left = keep_for -- somebody has taken its TTL away: the next renewal sets one
    end
    -- A write, so that a WAIT behind this call counts who has the grant: from Redis
    -- 7.2 on it knows of what its own connection has written alone. It also fails on
    -- a replica.
    call('PEXPIRE', record_key, math.max(left, tonumber(keep_for)) + outlives)
    return {'granted', record[1], left}
  end

  local turn
  if process ~= '' then
    turn = {
      process = process, number = tonumber(number), rest = tonumber(rest),
      called = tonumber(called), wait = tonumber(wait),
    }
  end

  if value then
    local left = call('PTTL', lock)
    if left < 0 then
      return {'conflict-ttl'}
    end
    local line, can = line_for(prefix, lock, now, turn)
    if line then
      can.tidy(line)
    end
    local whose = record[2] == value and 'same' or 'other'
    if #value > 1024 then
      value = '' -- not one of ours; nobody needs a large foreign value
    end
    return refuse({'held', left, value, record[3] or '', record[4] or '', whose}, line, can, turn, left)
  end

  if record[2] == token then
    return {'spent'}
  end
  local fence, implausible = next_fence(now, tonumber(floor), record[1])
  if not fence then
    return implausible
  end
  local line, can = line_for(prefix, lock, now, turn)
  local refused
  if overtake == '1' then
    refused = not may
  else
    refused = line and can.others_first(line) or turn and not (may and line.own == turn.number)
  end
  if refused then
    return refuse({'queued'}, line, can, turn)
  end
  local recovers = guarded ~= '' and guard(prefix, now, stamp, guarded) or 0
  if recovers > 0 then
    return {'recovering', recovers}
  end

  call('HSET', record_key, 'fence', fence, 'since', stamp, 'note', note, 'token', token)
  call('PEXPIRE', record_key, keep_for + outlives)
  if turn then
    can.pass(line, tonumber(keep_for))
  end
  if line and (line.width or 1) > 1 then
    call('HDEL', line.places, 'width') -- the next waking wakes one place again
  end
  call('SET', lock, token, 'PX', keep_for)
  if line then
    pcall(can.tell, line)
  end
  return {'granted', fence, keep_for}
end

-- claim is claim_lock that returns the errors which that raises.
local function claim(...)
  local ok, outcome = pcall(claim_lock, ...)
  if ok then
    return outcome
  end
  local text = type(outcome) == 'table' and outcome.err or tostring(outcome)
  return redis.error_reply(string.match(text, '^%-?(%u+ .*)$') or 'ERR ' .. text)
end
