-- What somebody does in Neovim with nvim-dap, which tells what it saw: `go WORDS` asks the case to send them to the
-- program, `saw NAME` is one thing done. The last line is `end`, or `failed WHY`.
-- Arguments in the environment: ADAPTER, MOUNT, PID, FILE, and LINES as JSON.
local dap = require('dap')
local lines = vim.fn.json_decode(vim.env.LINES_OF)
local deadline = tonumber(vim.env.DEADLINE) * 1000

local function say(words)
  io.stdout:write(words .. '\n')
  io.stdout:flush()
end

local function wait(what, condition)
  if not vim.wait(deadline, condition, 5) then
    error('no ' .. what .. ' came')
  end
end

--- What a request of the session is answered.
local function ask(command, arguments)
  local answered, failed, body
  dap.session():request(command, arguments, function(err, result)
    answered, failed, body = true, err, result
  end)
  wait('answer to ' .. command, function() return answered end)
  if failed then
    error(command .. ': ' .. vim.inspect(failed))
  end
  return body
end

local stops, output, last = {}, {}, nil
dap.listeners.after.event_stopped.case = function(_, body) table.insert(stops, body) end
dap.listeners.after.event_output.case = function(_, body) table.insert(output, body.output) end

--- The next stop, once Neovim shows where: its frame.
local function stopped(reason)
  wait('stop', function() return #stops > 0 end)
  local stop = table.remove(stops, 1)
  assert(stop.reason == reason, stop.reason .. ' instead of ' .. reason)
  wait('frame', function()
    local session = dap.session()
    local frame = session and session.stopped_thread_id == stop.threadId and session.current_frame
    return frame and frame ~= last and frame.scopes and frame.scopes[1].variables
  end)
  local frame = dap.session().current_frame
  last = frame
  assert(vim.api.nvim_buf_get_name(0) == vim.env.FILE, 'it shows ' .. vim.api.nvim_buf_get_name(0))
  assert(vim.api.nvim_win_get_cursor(0)[1] == frame.line, 'the cursor is elsewhere')
  return frame
end

local function at(frame, name, line)
  assert(frame.name == name and frame.line == line, ('at %s:%d, not at %s:%d'):format(frame.name, frame.line, name, line))
end

local function variable(frame, name)
  for _, one in pairs(frame.scopes[1].variables) do
    if one.name == name then return one end
  end
  error('no variable ' .. name)
end

--- With the cursor there, as it is set by hand.
local function breakpoint(line, ...)
  vim.api.nvim_win_set_cursor(0, {line, 0})
  dap.set_breakpoint(...)
end

local function run()
  dap.adapters.probefs = {type = 'executable', command = vim.env.ADAPTER, args = {vim.env.MOUNT}}
  dap.configurations.python = {{type = 'probefs', request = 'attach', name = 'probefs',
                                processId = tonumber(vim.env.PID)}}
  vim.cmd('edit ' .. vim.fn.fnameescape(vim.env.FILE))
  assert(vim.bo.filetype == 'python', 'it is no Python')
  breakpoint(lines.body, 'k == 1')
  breakpoint(lines.leaf, nil, nil, 'x is {x}')
  dap.continue()
  wait('session', function() return dap.session() and dap.session().initialized end)
  for _, points in pairs(require('dap.breakpoints').get()) do
    for _, point in pairs(points) do
      wait('verified line', function() return point.state and point.state.verified end)
    end
  end
  say('saw attach')

  say('go turn(21)')
  local frame = stopped('breakpoint')
  at(frame, 'turn', lines.body)
  assert(variable(frame, 'k').value == '1' and variable(frame, 'total').value == '0', 'the condition was passed over')
  local node = ask('variables', {variablesReference = variable(frame, 'node').variablesReference}).variables
  assert(node[1].name == 'depth' and node[1].value == '2', vim.inspect(node))
  say('saw condition, scopes')

  local evaluated
  dap.session():evaluate('total + node.kids[0].depth', function(err, body) evaluated = err and vim.inspect(err) or body.result end)
  wait('value', function() return evaluated end)
  assert(evaluated == '1', evaluated)
  ask('setVariable', {variablesReference = frame.scopes[1].variablesReference, name = 'total', value = '100'})
  say('saw evaluate, change')

  dap.step_over()
  frame = stopped('step')
  assert(frame.name == 'turn' and variable(frame, 'total').value == '101', vim.inspect(frame))
  say('saw step')

  dap.clear_breakpoints()
  vim.api.nvim_win_set_cursor(0, {lines.leaf, 0})
  dap.set_breakpoint(nil, nil, 'x is {x}')
  breakpoint(lines['return'])
  dap.continue()
  frame = stopped('breakpoint')
  at(frame, 'turn', lines['return'])
  assert(variable(frame, 'total').value == '145', variable(frame, 'total').value)
  wait('logged message', function() return vim.tbl_contains(output, 'x is 21\n') end)
  say('saw log')

  dap.clear_breakpoints()
  breakpoint(lines.leaf, nil, '2')
  dap.continue()
  say('go [turn(1), turn(2)][1]')
  frame = stopped('breakpoint')
  at(frame, 'leaf', lines.leaf)
  assert(variable(frame, 'x').value == '2', 'the count was passed over')
  dap.step_out()
  at(stopped('step'), 'turn', lines['return'])
  say('saw count, out')

  dap.disconnect()
  wait('end', function() return dap.session() == nil end)
  say('saw disconnect')
end

local fine, why = pcall(run)
say(fine and 'end' or 'failed ' .. tostring(why):gsub('\n', ' '))
vim.cmd('qa!')
