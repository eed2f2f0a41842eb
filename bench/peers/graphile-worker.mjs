// graphile-worker, tuned: 24 jobs at once, a local queue of 500, completions batched without delay; rows are deleted.
import pg from 'pg';
import worker from 'graphile-worker';
import { URL, handled, main, pickedUp } from './protocol.mjs';

const logger = new worker.Logger(() => () => {});
const preset = {
  worker: {
    connectionString: URL,
    concurrentJobs: 24,
    maxPoolSize: 10,
    pollInterval: 2000,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger,
  },
};
let utils, aside;

await main({
  async open() {
    utils = await worker.makeWorkerUtils({ connectionString: URL, maxPoolSize: 16, logger });
    await utils.migrate();
    aside = new pg.Client(URL);
    aside.on('error', () => {});
    await aside.connect();
  },
  reset: () => aside.query('TRUNCATE graphile_worker._private_jobs'),
  one: () => utils.addJob('noop', {}),
  many: (jobs) => utils.addJobs(Array.from({ length: jobs }, () => ({ identifier: 'noop', payload: {} }))),
  async left() {
    return Number((await aside.query('SELECT count(*) FROM graphile_worker._private_jobs')).rows[0].count);
  },
  stamp: (sent) => utils.addJob('stamp', { sent }),
  async work() {
    const taskList = { noop: async () => handled(), stamp: async ({ sent }) => pickedUp(sent) };
    await worker.run({ preset, taskList });
  },
});
