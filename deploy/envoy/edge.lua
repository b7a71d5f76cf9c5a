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
local function remove_grpc_headers(headers)
  local names = { "grpc-timeout" }
  for name, _ in pairs(headers) do
    if string.sub(name, -4) == "-bin" then
      table.insert(names, name)
    end
  end
  for _, name in ipairs(names) do
    headers:remove(name)
  end
end

function envoy_on_request(handle)
  local headers = handle:headers()
  well_formed_request_id(headers)
  local content_type = headers:get("content-type") or ""
  if string.sub(content_type, 1, 16) ~= "application/grpc" then
    remove_grpc_headers(headers)
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
