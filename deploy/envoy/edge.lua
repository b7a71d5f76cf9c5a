-- Makes REST answers of transcoded gRPC what an OpenAI client expects. Runs once per response, on its headers; the
-- chunks of a stream never pass through here, and gRPC and gRPC-Web answers are left as they are.
--
-- The gateway's protocol: initial metadata `x-http-status` (and retry-after), one HttpBody with OpenAI's error object,
-- then the true gRPC status. A bare gRPC error (raised before the handler could speak) gets its body here, with the
-- words of services/runtime/error_table.py; tests compare them.

local ERRORS = { -- HTTP status -> OpenAI type, code
  ["400"] = { "invalid_request_error", "invalid_value" },
  ["401"] = { "authentication_error", "invalid_api_key" },
  ["403"] = { "permission_error", "permission_denied" },
  ["404"] = { "invalid_request_error", "unknown_url" },
  ["409"] = { "conflict_error", "generation_conflict" },
  ["429"] = { "rate_limit_error", "overloaded" },
  ["499"] = { "invalid_request_error", "cancelled" },
  ["500"] = { "server_error", "internal_error" },
  ["501"] = { "invalid_request_error", "unimplemented" },
  ["503"] = { "service_unavailable_error", "unavailable" },
  ["504"] = { "timeout_error", "timeout" },
}
local RETRY_AFTER = { ["429"] = "1", ["503"] = "1" } -- seconds
local GRPC_HEADERS = { "grpc-status", "grpc-message", "grpc-status-details-bin", "grpc-encoding", "grpc-accept-encoding" }

-- A percent-encoded grpc-message as a JSON string.
local function quoted(message)
  local text = string.gsub(message, "%%(%x%x)", function(digits)
    return string.char(tonumber(digits, 16))
  end)
  text = string.gsub(text, '[%c"\\]', function(character)
    return string.format("\\u%04x", string.byte(character))
  end)
  return '"' .. text .. '"'
end

-- The gateway takes a client's request id only if it is well-formed (services/runtime/logs.py); the answer and the access
-- log must carry the one that it takes.
local function well_formed_request_id(headers)
  local id = headers:get("x-request-id")
  if id == nil or (#id <= 128 and #id > 0 and not string.find(id, "[^%w._:-]")) then
    return
  end
  local clean = string.sub(string.gsub(id, "[^%w._:-]", ""), 1, 128)
  if clean == "" then
    clean = string.format("%08x%08x", math.random(0, 2147483647), math.random(0, 2147483647))
  end
  headers:replace("x-request-id", clean)
end

-- Headers that mean something to gRPC only; a malformed one would be answered as a fault of ours.
local function is_grpc_header(name)
  return string.sub(name, 1, 5) == "grpc-" or string.sub(name, -4) == "-bin"
end

-- gRPC's core refuses a call with such a name, as a fault of ours.
local function is_unreadable(name)
  return string.find(name, "[^%w._:-]") ~= nil
end

local function remove_where(headers, unwanted)
  local names = {}
  for name, _ in pairs(headers) do
    if unwanted(name) then
      table.insert(names, name)
    end
  end
  for _, name in ipairs(names) do
    headers:remove(name)
  end
end

-- Headers that gRPC's implementations exchange among themselves; the gateway wants none of them from a client.
local HOP_HEADERS = {
  "grpc-previous-rpc-attempts", "grpc-retry-pushback-ms", "grpc-internal-encoding-request", "grpc-server-stats-bin",
  "grpc-tags-bin", "grpc-trace-bin", "grpclb_client_stats", "lb-token", "lb-cost-bin", "endpoint-load-metrics-bin",
}
local ENCODINGS = { identity = true, deflate = true, gzip = true } -- of messages, which gRPC's core knows
local WEB = { -- what the grpc_web filter understands
  ["application/grpc-web"] = true, ["application/grpc-web+proto"] = true,
  ["application/grpc-web-text"] = true, ["application/grpc-web-text+proto"] = true,
}

-- As strict as gRPC's core: one value, and no bits beyond its last byte.
local function is_base64(value)
  local digits = string.match(value, "^([%w+/]*)=?=?$")
  if digits == nil then
    return false
  end
  local rest = #digits % 4
  if rest == 2 then
    return string.find(digits, "[AQgw]$") ~= nil
  elseif rest == 3 then
    return string.find(digits, "[AEIMQUYcgkosw048]$") ~= nil
  end
  return rest == 0
end

-- What is wrong with a gRPC call's headers, or nil. gRPC's core remembers a header that it cannot read and goes on failing
-- calls of other clients with it, because all of them share the edge's connections to a gateway.
local function malformed(headers)
  local timeout = headers:get("grpc-timeout")
  if timeout ~= nil and (#timeout > 9 or not string.find(timeout, "^%d+[HMSmun]$")) then
    return "grpc-timeout: must be 1 to 8 digits and one of H, M, S, m, u, n."
  end
  local encoding = headers:get("grpc-encoding")
  if encoding ~= nil and not ENCODINGS[encoding] then
    return "grpc-encoding: must be identity, deflate or gzip."
  end
  for name, value in pairs(headers) do
    if string.sub(name, -4) == "-bin" and not is_base64(value) then
      return string.gsub(string.sub(name, 1, 64), "[^%w._-]", "?") .. ": must be base64."
    end
  end
  return nil
end

local function check_grpc(handle, headers, content_type)
  local kind = string.lower(string.match(content_type, "^[^;%s]*"))
  if string.sub(kind, 1, 20) == "application/grpc-web" and not WEB[kind] then
    local message = "content-type: must be application/grpc-web, application/grpc-web-text, or either with +proto."
    handle:respond({ [":status"] = "415", ["content-type"] = "text/plain" }, message)
    return
  end
  for _, name in ipairs(HOP_HEADERS) do
    headers:remove(name)
  end
  local problem = malformed(headers)
  if problem ~= nil then
    local answer = { [":status"] = "200", ["content-type"] = kind, ["grpc-status"] = "3", ["grpc-message"] = problem }
    handle:respond(answer, "")
  end
end

function envoy_on_request(handle)
  local headers = handle:headers()
  well_formed_request_id(headers)
  remove_where(headers, is_unreadable)
  local content_type = headers:get("content-type") or ""
  if string.sub(string.lower(content_type), 1, 16) == "application/grpc" then
    check_grpc(handle, headers, content_type)
  else
    remove_where(headers, is_grpc_header)
    handle:streamInfo():dynamicMetadata():set("hotline.edge", "rest", true)
  end
end

function envoy_on_response(handle)
  local mark = handle:streamInfo():dynamicMetadata():get("hotline.edge")
  if mark == nil or not mark["rest"] then
    return
  end
  local headers = handle:headers()
  local status = headers:get("x-http-status")
  local message = headers:get("grpc-message")
  for _, name in ipairs(GRPC_HEADERS) do
    headers:remove(name)
  end
  if status ~= nil then
    headers:remove("x-http-status")
    if string.match(status, "^[2-5]%d%d$") then
      headers:replace(":status", status)
    end
    return
  end

  status = headers:get(":status")
  if message == nil or tonumber(status) < 400 then
    return
  end
  local words = ERRORS[status] or ERRORS["500"]
  local body = '{"error":{"message":' .. quoted(message) .. ',"type":"' .. words[1] .. '","param":null,"code":"' .. words[2] .. '"}}'
  headers:replace("content-type", "application/json")
  headers:replace("content-length", tostring(handle:body(true):setBytes(body)))
  if RETRY_AFTER[status] and headers:get("retry-after") == nil then
    headers:add("retry-after", RETRY_AFTER[status])
  end
end
