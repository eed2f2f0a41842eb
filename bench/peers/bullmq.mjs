// bullmq on Redis: concurrency 100; completed jobs are kept in memory.
import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import { URL as ADDRESS, handled, main, pickedUp } from './protocol.mjs';

const { hostname, port } = new URL(ADDRESS);
const connection = { host: hostname, port: Number(port) };
let queue, aside;

await main({
  async open() {
    queue = new Queue('q', { connection });
    await queue.waitUntilReady();
    aside = new Redis(connection);
  },
  reset: () => aside.flushall(),
  one: () => queue.add('noop', {}),
  many: (jobs) => queue.addBulk(Array.from({ length: jobs }, () => ({ name: 'noop', data: {} }))),
  async left() {
    const counts = await queue.getJobCounts('wait', 'active', 'prioritized');
    return counts.wait + counts.active + counts.prioritized;
  },
  stamp: (sent) => queue.add('stamp', { sent }),
  async work() {
    const handler = async (job) => (job.name === 'noop' ? handled() : pickedUp(job.data.sent));
    new Worker('q', handler, { connection: { ...connection, maxRetriesPerRequest: null }, concurrency: 100 });
  },
});
