// A worker for Detent's Redis Streams in Node. It connects to Redis only, not to the database:
//   npm install redis && REDIS_URL=redis://127.0.0.1:6379 node streams_worker.mjs
// The protocol is described in docs/guides/redis-streams.md. A tool may be called twice for one task: check the idempotency key.
import { hostname } from 'node:os';
import { createClient } from 'redis';

const TASKS = 'stream:task', RESULTS = 'stream:result', GROUP = 'cg:workers';
const HEARTBEAT_MS = 1000 * Number(process.env.HEARTBEAT_INTERVAL_S || 30);
const me = `node-${hostname()}-${process.pid}`;

const tools = {
  'text.upper': async ({ text }) => ({ text: text.toUpperCase() }),
  'text.slowly': async ({ text, ms }) => (await new Promise((done) => setTimeout(done, ms)), { text }),
  'always.fails': async () => { throw new Error('as its name says'); },
  // An effect that must not happen twice: the key is the same for every attempt of a task, and after a requeue.
  'order.place': async ({ order, fails }, { idempotency_key: key }) => {
    const placed = await redis.sendCommand(['HSETNX', 'orders', key, String(order)]);
    if (fails) throw new Error('after the effect');
    return { placed: placed === 1 };
  },
};

const url = process.env.REDIS_URL || 'redis://127.0.0.1:6379';
const redis = createClient({ url }); // without the option RESP, which servers before Redis 6 refuse
const reading = redis.duplicate(); // a blocking read needs its own connection
for (const client of [redis, reading]) client.on('error', (error) => console.error('redis:', error.message));
await Promise.all([redis.connect(), reading.connect()]);

let running = true;
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => { running = false; });
await createGroup();
console.log(`${me} is waiting for tasks`);
while (running) {
  for (const [messageId, words] of await read()) await handle(messageId, toObject(words));
}
await Promise.all([redis.quit(), reading.quit()]);

async function read() {
  // One message at a time: messages queued behind a long task would need heartbeats too.
  const command = ['XREADGROUP', 'GROUP', GROUP, me, 'COUNT', '1', 'BLOCK', '1000', 'STREAMS', TASKS, '>'];
  try {
    const streams = await reading.sendCommand(command);
    return streams ? streams[0][1] : [];
  } catch (error) {
    if (error.message.startsWith('NOGROUP')) await createGroup(); // Redis lost its data
    else { console.error('read:', error.message); await new Promise((done) => setTimeout(done, 500)); }
    return [];
  }
}

async function createGroup() {
  try {
    await redis.sendCommand(['XGROUP', 'CREATE', TASKS, GROUP, '0', 'MKSTREAM']);
  } catch (error) {
    if (!error.message.startsWith('BUSYGROUP')) throw error;
  }
}

async function handle(messageId, task) {
  const send = (fields) => sendResult({ task_id: task.task_id ?? '', message_id: messageId, worker: me, ...fields });
  await send({ status: 'claimed' });
  // Without a heartbeat for five minutes, the message is given to another worker.
  const onError = (error) => console.error('heartbeat:', error.message);
  const timer = setInterval(() => heartbeat(messageId).catch(onError), HEARTBEAT_MS);
  try {
    await send(await outcome(task));
  } finally {
    clearInterval(timer);
  }
  await delivered(['XACK', TASKS, GROUP, messageId]); // last, after the result was sent
}

async function outcome(task) {
  // Only an error of the tool is a failure. Writing the result is not part of it.
  try {
    return { status: 'succeeded', output: JSON.stringify(await run(task)) };
  } catch (error) {
    const { code = 'EXECUTION_FAILED', retryable = true, message } = error;
    return { status: 'failed', error: message, error_code: code, retryable: String(retryable) };
  }
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
  return tool(payload, task);
}

function heartbeat(messageId) {
  return redis.sendCommand(['XCLAIM', TASKS, GROUP, me, '0', messageId, 'JUSTID']);
}

function sendResult(fields) {
  return delivered(['XADD', RESULTS, '*', ...Object.entries(fields).flat()]);
}

async function delivered(command) {
  // Repeated until Redis has answered: the same result twice is one result. A worker that is stopped gives up; its
  // message is then given to another worker.
  for (;;) {
    try {
      return await redis.sendCommand(command);
    } catch (error) {
      if (!running) throw error;
      console.error(`${command[0]}, trying again:`, error.message);
      await new Promise((done) => setTimeout(done, 500));
    }
  }
}

function toObject(words) {
  const fields = {};
  for (let at = 0; at < words.length; at += 2) fields[words[at]] = words[at + 1];
  return fields;
}
