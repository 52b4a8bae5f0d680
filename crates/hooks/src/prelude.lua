-- What a script of a hook has instead of Lua's own library. It is run once for each script; its argument has the
-- functions of the broker. Whatever goes over a text or a table in C takes from the budget first.
local host = ...
local error, next = error, next
local rawget, select, setmetatable = rawget, select, setmetatable
local tonumber, tostring, type = tonumber, tostring, type
local string, table, math, utf8 = string, table, math, utf8
local charge, search = host.charge, host.search

local function read_only(what, index)
  return setmetatable({}, {
    __index = index,
    __newindex = function() error(what .. " cannot be changed", 2) end,
  })
end

local function text(value, name)
  local kind = type(value)
  if kind == "string" then return value end
  if kind == "number" then return tostring(value) end
  error(name .. ": a string is expected, not a " .. kind, 3)
end

local function list(value, name)
  if type(value) ~= "table" then error(name .. ": a table is expected, not a " .. type(value), 3) end
  return value
end

-- Functions of the C library, with the price of the text that they go over.
local function priced(name, f)
  return function(s, ...)
    s = text(s, name)
    charge(#s // 16)
    return f(s, ...)
  end
end

local byte, concat, rep, sub = string.byte, table.concat, string.rep, string.sub
local unpack = table.unpack

local function number(value, default)
  if value == nil then return default end
  return math.tointeger(tonumber(value)) or error("a whole number is expected", 3)
end

-- The place of a string that `init` means, from 1.
local function place(init, length)
  init = number(init, 1)
  if init > 0 then return init end
  if init == 0 or -init > length then return 1 end
  return length + init + 1
end

local safe = {
  byte = priced("byte", byte),
  char = string.char,
  format = string.format,
  len = string.len,
  lower = priced("lower", string.lower),
  reverse = priced("reverse", string.reverse),
  sub = sub,
  upper = priced("upper", string.upper),
}

function safe.rep(s, n, separator)
  s, n, separator = text(s, "rep"), number(n, 0), text(separator or "", "rep")
  if n <= 0 or #s + #separator == 0 then return "" end
  charge(n // 8 + (#s + #separator) * n // 16)
  return rep(s, n, separator)
end

function safe.find(s, pattern, init, plain)
  s, pattern = text(s, "find"), text(pattern, "find")
  init = place(init, #s)
  if init > #s + 1 then return nil end
  local first, last = search(s, pattern, init, 0, plain and true or false)
  if not first then return nil end
  return first, last, host.captures(s)
end

function safe.match(s, pattern, init)
  s, pattern = text(s, "match"), text(pattern, "match")
  init = place(init, #s)
  if init > #s + 1 then return nil end
  local first, last = search(s, pattern, init, 0, false)
  if not first then return nil end
  if not host.has_captures() then return sub(s, first, last) end
  return host.captures(s)
end

function safe.gmatch(s, pattern)
  s, pattern = text(s, "gmatch"), text(pattern, "gmatch")
  local at, ended = 1, 0
  return function()
    if at > #s + 1 then return nil end
    local first, last = search(s, pattern, at, ended, false)
    if not first then
      at = #s + 2
      return nil
    end
    at, ended = last + 1, last + 1
    if not host.has_captures() then return sub(s, first, last) end
    return host.captures(s)
  end
end

-- A replacement in which %0 to %9 stand for the match and its captures.
local function expanded(replacement, whole, captures)
  local out, at = {}, 1
  while at <= #replacement do
    local percent = search(replacement, "%", at, 0, true)
    if not percent then
      out[#out + 1] = sub(replacement, at)
      break
    end
    out[#out + 1] = sub(replacement, at, percent - 1)
    local digit = sub(replacement, percent + 1, percent + 1)
    if digit == "%" then
      out[#out + 1] = "%"
    elseif digit == "0" then
      out[#out + 1] = whole
    else
      local value = captures[tonumber(digit) or error("invalid use of % in a replacement", 3)]
      out[#out + 1] = value or error("no capture %" .. digit, 3)
    end
    at = percent + 2
  end
  return concat(out)
end

function safe.gsub(s, pattern, replacement, most)
  s, pattern = text(s, "gsub"), text(pattern, "gsub")
  local kind = type(replacement)
  if kind == "number" then replacement, kind = tostring(replacement), "string" end
  if kind ~= "string" and kind ~= "table" and kind ~= "function" then
    error("gsub: a string, table or function is expected", 2)
  end
  local has_percent = kind == "string" and search(replacement, "%", 1, 0, true)
  most = number(most, #s + 1)
  local anchored = byte(pattern, 1) == 94
  local out, count, at, ended = {}, 0, 1, 0
  while count < most do
    local first, last = search(s, pattern, at, ended, false)
    if not first then break end
    local captures = { host.captures(s) }
    local whole = sub(s, first, last)
    if captures[1] == nil then captures[1] = whole end
    local value
    if kind == "table" then
      value = replacement[captures[1]]
    elseif kind == "function" then
      value = replacement(unpack(captures))
    elseif has_percent then
      value = expanded(replacement, whole, captures)
    else
      value = replacement
    end
    count = count + 1
    out[#out + 1] = sub(s, at, first - 1)
    if not value then
      value = whole
    elseif type(value) ~= "string" and type(value) ~= "number" then
      error("invalid replacement value (a " .. type(value) .. ")", 2)
    end
    out[#out + 1] = value
    at, ended = last + 1, last + 1
    if anchored then break end
  end
  out[#out + 1] = sub(s, at)
  return concat(out), count
end

-- Methods of strings are found in the library's own table.
for name in next, string do string[name] = nil end
for name, f in next, safe do string[name] = f end

local tables = { pack = table.pack }

function tables.concat(t, separator, i, j)
  list(t, "concat")
  separator, i = text(separator or "", "concat"), number(i, 1)
  j = number(j, #t)
  charge((j - i) // 4 + #separator * (j - i) // 16)
  return concat(t, separator, i, j)
end

function tables.unpack(t, i, j)
  list(t, "unpack")
  i, j = number(i, 1), number(j, #t)
  if j - i >= 4096 then error("unpack: more than 4096 values", 2) end
  if j >= i then charge((j - i) // 4) end
  return unpack(t, i, j)
end

function tables.insert(t, ...)
  list(t, "insert")
  local count = select("#", ...)
  if count == 1 then
    t[#t + 1] = (...)
    return
  end
  if count ~= 2 then error("insert: wrong number of arguments", 2) end
  local at, value = ...
  local length = #t + 1
  at = number(at, length)
  if at < 1 or at > length then error("insert: position out of bounds", 2) end
  for i = length, at + 1, -1 do t[i] = t[i - 1] end
  t[at] = value
end

function tables.remove(t, at)
  list(t, "remove")
  local length = #t
  if at == nil then at = length end
  at = number(at, length)
  if length + 1 == at or length == 0 and at == 0 then
    local value = t[at]
    t[at] = nil
    return value
  end
  if at < 1 or at > length then error("remove: position out of bounds", 2) end
  local value = t[at]
  for i = at, length - 1 do t[i] = t[i + 1] end
  t[length] = nil
  return value
end

-- A heap: it takes as long for any order, whatever `less` says.
function tables.sort(t, less)
  list(t, "sort")
  less = less or function(a, b) return a < b end
  local function sink(at, length)
    local value = t[at]
    while true do
      local child = at * 2
      if child > length then break end
      if child < length and less(t[child], t[child + 1]) then child = child + 1 end
      if not less(value, t[child]) then break end
      t[at] = t[child]
      at = child
    end
    t[at] = value
  end
  local length = #t
  for at = length // 2, 1, -1 do sink(at, length) end
  for last = length, 2, -1 do
    t[1], t[last] = t[last], t[1]
    sink(1, last - 1)
  end
end

local maths = {}
for name, value in next, math do maths[name] = value end
maths.random, maths.randomseed = nil, nil

local texts = {
  char = utf8.char,
  charpattern = utf8.charpattern,
  codepoint = priced("codepoint", utf8.codepoint),
  codes = priced("codes", utf8.codes),
  len = priced("len", utf8.len),
  offset = priced("offset", utf8.offset),
}

local library = {
  _VERSION = _VERSION,
  assert = assert,
  config = read_only("config", { get = host.config }),
  error = error,
  ipairs = ipairs,
  math = read_only("math", maths),
  next = next,
  pairs = pairs,
  select = select,
  string = read_only("string", string),
  table = read_only("table", tables),
  type = type,
  utf8 = read_only("utf8", texts),
}

function library.tonumber(value, ...)
  if type(value) == "string" then charge(#value // 16) end
  return tonumber(value, ...)
end

-- Addresses of tables and functions are nobody's business.
function library.tostring(value)
  local kind = type(value)
  if kind == "table" or kind == "function" then return kind end
  return tostring(value)
end

local fields = setmetatable({
  header_list = function()
    local flat = host.headers()
    local headers = {}
    for at = 1, #flat, 2 do headers[#headers + 1] = { name = flat[at], value = flat[at + 1] } end
    return headers
  end,
  headers = read_only("headers", function(_, name) return host.header(name) end),
  payload = host.payload,
}, { __index = function(_, name) return host.field(name) end })
local message = read_only("a message", fields)
local environment = { __index = library }

-- The functions that the script defines, with nothing that an earlier run has left.
local function begun(chunk)
  local globals = setmetatable({}, environment)
  chunk(globals)
  return globals
end

local function defined(chunk)
  local globals = begun(chunk)
  return type(rawget(globals, "on_publish")) == "function",
    type(rawget(globals, "on_failure")) == "function"
end

local publish_fields = {
  cost = true, delay_ms = true, fair_key = true, headers = true, priority = true, refuse = true,
  throttle_keys = true, time_to_live_ms = true, weight = true,
}
local failure_fields = { dead_letter = true, retry_after_ms = true, route = true }

local function checked(result, known, name)
  if type(result) ~= "table" then
    error(name .. " returns nothing or a table, not a " .. type(result), 0)
  end
  for field in next, result do
    if not known[field] then
      error(name .. " has returned the unknown field '" .. tostring(field) .. "'", 0)
    end
  end
end

local function flat_headers(headers)
  if type(headers) ~= "table" then error("headers: a table is expected", 0) end
  local flat = {}
  for name, value in next, headers do
    flat[#flat + 1] = name
    flat[#flat + 1] = value
  end
  return unpack(flat)
end

local function on_publish(chunk)
  local result = begun(chunk).on_publish(message)
  if result == nil then return end
  checked(result, publish_fields, "on_publish")
  local keys = result.throttle_keys
  if type(keys) == "table" then keys = tables.concat(keys, ",") end
  if result.headers == nil then
    return result.refuse, result.fair_key, result.weight, result.priority, result.cost, keys,
      result.delay_ms, result.time_to_live_ms
  end
  if #result.headers > 0 then error("headers: names are expected, as in { name = value }", 0) end
  return result.refuse, result.fair_key, result.weight, result.priority, result.cost, keys,
    result.delay_ms, result.time_to_live_ms, flat_headers(result.headers)
end

local function on_failure(chunk)
  local result = begun(chunk).on_failure(message)
  if result == nil then return end
  checked(result, failure_fields, "on_failure")
  return result.retry_after_ms, result.dead_letter, result.route
end

return defined, on_publish, on_failure
