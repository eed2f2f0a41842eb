// A worker for Detent's Redis Streams in Node. It needs Redis alone, no database:
//   npm install redis && REDIS_URL=redis://127.0.0.1:6379 node streams_worker.mjs
// The protocol is described in docs/redis-streams.md. What a tool does may happen twice: check the idempotency key.
import { hostname } from 'node:os';
import { createClient } from 'redis';

const TASKS = 'stream:task', RESULTS = 'stream:result', GROUP = 'cg:workers';
const HEARTBEAT_MS = 1000 * Number(process.env.HEARTBEAT_INTERVAL_S || 30);
const me = `node-${hostname()}-${process.pid}`;

const tools = {
  'text.upper': async ({ text }) => ({ text: text.toUpperCase() }),
  'text.slowly': async ({ text, ms }) => (await new Promise((done) => setTimeout(done, ms)), { text }),
  'always.fails': async () => { throw new Error('as its name says'); },
};

const url = process.env.REDIS_URL || 'redis://127.0.0.1:6379';
const redis = createClient({ url, RESP: 2 });
const waiting = redis.duplicate(); // a read that waits has a connection of its own
for (const client of [redis, waiting]) client.on('error', (error) => console.error('redis:', error.message));
await Promise.all([redis.connect(), waiting.connect()]);

let running = true;
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { running = false; });
await makeGroup();
console.log(`${me} is waiting for tasks`);
while (running) {
  for (const [messageId, words] of await read()) await handle(messageId, table(words));
}
await Promise.all([redis.quit(), waiting.quit()]);

async function read() {
  // One at a time: messages that wait behind a long task would have to be kept alive too.
  const command = ['XREADGROUP', 'GROUP', GROUP, me, 'COUNT', '1', 'BLOCK', '1000', 'STREAMS', TASKS, '>'];
  try {
    const streams = await waiting.sendCommand(command);
    return streams ? streams[0][1] : [];
  } catch (error) {
    if (error.message.startsWith('NOGROUP')) await makeGroup(); // the server came back empty
    else { console.error('read:', error.message); await new Promise((done) => setTimeout(done, 500)); }
    return [];
  }
}

async function makeGroup() {
  try {
    await redis.sendCommand(['XGROUP', 'CREATE', TASKS, GROUP, '0', 'MKSTREAM']);
  } catch (error) {
    if (!error.message.startsWith('BUSYGROUP')) throw error;
  }
}

async function handle(messageId, task) {
  const say = (fields) => result({ task_id: task.task_id ?? '', message_id: messageId, worker: me, ...fields });
  await say({ status: 'claimed' });
  // While it works it keeps its message: whoever shows no sign of life for five minutes loses it.
  const alive = setInterval(() => keep(messageId).catch((error) => console.error('keep:', error.message)), HEARTBEAT_MS);
  try {
    await say({ status: 'succeeded', output: JSON.stringify(await run(task)) });
  } catch (error) {
    const { code = 'EXECUTION_FAILED', retryable = true, message } = error;
    await say({ status: 'failed', error: message, error_code: code, retryable: String(retryable) });
  } finally {
    clearInterval(alive);
  }
  await redis.sendCommand(['XACK', TASKS, GROUP, messageId]); // last, when the result is on its stream
}

async function run(task) {
  const tool = tools[task.tool_name];
  if (!tool) throw Object.assign(new Error(`no tool ${task.tool_name}`), { code: 'TOOL_UNKNOWN', retryable: false });
  let payload;
  try {
    payload = JSON.parse(task.payload);
  } catch (error) {
    throw Object.assign(error, { code: 'SCHEMA_INVALID', retryable: false });
  }
  return tool(payload);
}

function keep(messageId) {
  return redis.sendCommand(['XCLAIM', TASKS, GROUP, me, '0', messageId, 'JUSTID']);
}

function result(fields) {
  return redis.sendCommand(['XADD', RESULTS, '*', ...Object.entries(fields).flat()]);
}

function table(words) {
  const fields = {};
  for (let at = 0; at < words.length; at += 2) fields[words[at]] = words[at + 1];
  return fields;
}
