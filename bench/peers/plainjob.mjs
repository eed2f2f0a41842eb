// plainjob on SQLite, polled every 10 ms; rows are kept. Variant full: a sync at every commit instead of its default.
import fs from 'node:fs';
import Database from 'better-sqlite3';
import { better, defineQueue, defineWorker } from 'plainjob';
import { PART, URL, VARIANT, handled, main, pickedUp } from './protocol.mjs';

const logger = { error() {}, warn() {}, info() {}, debug() {} };
let database, queue;

function open() {
  database = new Database(URL);
  queue = defineQueue({ connection: better(database), logger });
  if (VARIANT === 'full') database.pragma('synchronous = FULL');
}

await main({
  open() {},
  reset() {
    queue?.close();
    for (const ending of ['', '-wal', '-shm']) fs.rmSync(URL + ending, { force: true });
    open();
  },
  one: () => queue.add('noop', {}),
  many: (jobs) => queue.addMany('noop', Array(jobs).fill({})),
  left: () => database.prepare('SELECT count(*) AS n FROM plainjob_jobs WHERE status < 2').get().n,
  stamp: (sent) => queue.add('stamp', { sent }),
  async work() {
    open();
    // A second worker in the same process would poll beside the first: one is started, for what is measured.
    if (PART === 'drain') {
      defineWorker('noop', async () => handled(), { queue, logger }).start();
    } else {
      const handler = async (job) => pickedUp(JSON.parse(job.data).sent);
      defineWorker('stamp', handler, { queue, logger, pollIntervall: 10 }).start();
    }
  },
});
