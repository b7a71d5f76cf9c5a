"""What has to happen at once in Redis, as its own scripts. Times are Unix milliseconds."""

CREATE = """
-- KEYS: session, owner's sessions, all ends, media.  ARGV: id, owner, record, version, create, end, now, most of all, most of one
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', ARGV[7])
local held = redis.call('ZCARD', KEYS[3])
local owned = redis.call('ZCARD', KEYS[2])
if owned >= tonumber(ARGV[9]) then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
    if not redis.call('ZSCORE', KEYS[3], id) then redis.call('ZREM', KEYS[2], id) end
  end
  owned = redis.call('ZCARD', KEYS[2])
end
if owned >= tonumber(ARGV[9]) or held >= tonumber(ARGV[8]) then return {0, held, owned} end
redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'record', ARGV[3], 'version', ARGV[4], 'end', ARGV[6])
redis.call('PEXPIREAT', KEYS[1], ARGV[6])
redis.call('PEXPIREAT', KEYS[4], ARGV[6])
redis.call('ZADD', KEYS[2], ARGV[5], ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[6], ARGV[1])
return {1, held, owned}
"""
"""{1}, or {0, sessions in all, sessions of this owner} where there is no room."""

REPLACE = """
-- KEYS: session, all ends, media.  ARGV: id, owner, record, version, end, now
local kept = redis.call('HMGET', KEYS[1], 'owner', 'version', 'end')
if kept[1] ~= ARGV[2] or tonumber(kept[2]) ~= tonumber(ARGV[4]) - 1 or tonumber(kept[3]) <= tonumber(ARGV[6]) then
  return 0
end
local stop = math.max(tonumber(kept[3]), tonumber(ARGV[5]))
stop = string.format('%.0f', stop)
redis.call('HSET', KEYS[1], 'record', ARGV[3], 'version', ARGV[4], 'end', stop)
redis.call('PEXPIREAT', KEYS[1], stop)
redis.call('PEXPIREAT', KEYS[3], stop)
redis.call('ZADD', KEYS[2], stop, ARGV[1])
return 1
"""

TOUCH = """
-- KEYS: session, all ends, media.  ARGV: id, owner, end, now
local kept = redis.call('HMGET', KEYS[1], 'owner', 'end')
if kept[1] ~= ARGV[2] or tonumber(kept[2]) <= tonumber(ARGV[4]) then return -1 end
local stop = string.format('%.0f', math.max(tonumber(kept[2]), tonumber(ARGV[3])))
redis.call('HSET', KEYS[1], 'end', stop)
redis.call('PEXPIREAT', KEYS[1], stop)
redis.call('PEXPIREAT', KEYS[3], stop)
redis.call('ZADD', KEYS[2], stop, ARGV[1])
return stop
"""

DELETE = """
-- KEYS: session, owner's sessions, all ends, media.  ARGV: id, owner, now
local kept = redis.call('HMGET', KEYS[1], 'owner', 'end')
if kept[1] ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1], KEYS[4])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
if tonumber(kept[2]) <= tonumber(ARGV[3]) then return 0 end
return 1
"""

PUT_IMAGE = """
-- KEYS: media, session.  ARGV: digest, data, most bytes, time to live where there is no session yet
local held = tonumber(redis.call('HGET', KEYS[1], 'bytes') or '0')
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 or held + #ARGV[2] > tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2], 'bytes', held + #ARGV[2])
local stop = redis.call('HGET', KEYS[2], 'end')
if stop then redis.call('PEXPIREAT', KEYS[1], stop) else redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return 1
"""

CLAIM = """
-- KEYS: lease.  ARGV: holder, time to live
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return holder end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
"""

RELEASE = """
-- KEYS: lease.  ARGV: holder
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 0
"""
