/**
 * A function that requests a run of `task`. Runs never overlap and start at least `interval` milliseconds after the last
 * one ended. `request(true)` does not wait for the interval.
 * @param {() => Promise<void>} task
 * @param {number} interval
 */
export function throttle(task, interval) {
  /** @type {number | null} */
  let timer = null;
  let running = false, runAgain = false, urgent = false, endedAt = 0;

  async function run() {
    timer = null;
    running = true;
    try {
      await task();
    } finally {
      running = false;
      endedAt = performance.now();
      if (runAgain) {
        runAgain = false;
        request(urgent);
      }
    }
  }

  function request(now = false) {
    urgent = now || (running && urgent);
    if (running) runAgain = true;
    else if (now || timer === null) {
      if (timer !== null) clearTimeout(timer);
      timer = setTimeout(run, now ? 0 : Math.max(0, interval - (performance.now() - endedAt)));
    }
  }
  return request;
}
