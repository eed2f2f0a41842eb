// pg-boss: whole batches of 10,000 a handler call, polled twice a second; rows are kept.
import pg from 'pg';
import PgBoss from 'pg-boss';
import { URL, handled, main, pickedUp } from './protocol.mjs';

const options = { batchSize: 10000, pollingIntervalSeconds: 0.5 };
let boss, aside;

async function started() {
  const made = new PgBoss({ connectionString: URL, supervise: false, schedule: false });
  made.on('error', () => {});
  await made.start();
  return made;
}

await main({
  async open() {
    boss = await started();
    await boss.createQueue('noop');
    await boss.createQueue('stamp');
    aside = new pg.Client(URL);
    aside.on('error', () => {});
    await aside.connect();
  },
  reset: () => aside.query('DELETE FROM pgboss.job'),
  one: () => boss.send('noop', {}),
  many: (jobs) => boss.insert(Array.from({ length: jobs }, () => ({ name: 'noop', data: {} }))),
  async left() {
    return Number((await aside.query("SELECT count(*) FROM pgboss.job WHERE state < 'completed'")).rows[0].count);
  },
  stamp: (sent) => boss.send('stamp', { sent }),
  async work() {
    const mine = await started();
    await mine.work('noop', options, async (jobs) => { for (const _ of jobs) handled(); });
    await mine.work('stamp', options, async (jobs) => { for (const job of jobs) pickedUp(job.data.sent); });
  },
});
