/** @import { Progress, StreamEvent } from "../types.d.ts" */

import { asProblem } from "./api.js";
import { fill, h, requireElement } from "./dom.js";
import { followEvents } from "./event_stream.js";
import { errorState, loadingState } from "./states.js";
import { throttle } from "./throttle.js";
import { t } from "./words.js";

/**
 * Load and draw a page, and again after each event that concerns it, after a reconnect, and every `poll` milliseconds.
 * The drawn data stays while the next load runs; if that load fails, a banner says that the data may be outdated.
 * Returns a function that reloads at once.
 * @template Data
 * @param {object} options
 * @param {() => Promise<Data>} options.load
 * @param {(root: HTMLElement, data: Data) => void} options.draw
 * @param {(event: StreamEvent) => boolean} [options.concerns]
 * @param {() => boolean} [options.isPaused] true: only the returned function loads
 * @param {number} [options.every] shortest time between two loads, in milliseconds
 * @param {number} [options.poll] 0: no polling
 * @param {(root: HTMLElement, problem: ReturnType<typeof asProblem>) => void} [options.drawRefusal] draws what the
 *   viewer can correct, if the first load is refused with 422
 * @param {Record<string, string>} [options.filter] of the event stream
 * @param {(jobId: string, progress: Progress) => void} [options.onProgress] of running jobs, at most once a second each
 */
export function startPage(
  {
    load,
    draw,
    drawRefusal,
    concerns = () => true,
    isPaused = () => false,
    every = 1000,
    poll = 0,
    filter,
    onProgress,
  },
) {
  const root = requireElement("#page");
  const banner = h("p", { class: "banner disconnected", hidden: true });
  const content = h("div");
  let drawn = false;
  root.before(banner);
  const refresh = throttle(async () => {
    try {
      const data = await load();
      if (!drawn) fill(root, content);
      draw(content, data);
      drawn = true;
      banner.hidden = true;
    } catch (error) {
      const problem = asProblem(error);
      if (problem.status === undefined) console.error(error);
      if (drawn) {
        banner.textContent = t("state.outdated", { error: problem.message });
        banner.hidden = false;
      } else if (drawRefusal && problem.status === 422) {
        fill(root, content);
        drawRefusal(content, problem);
        drawn = true;
      } else fill(root, errorState(problem, retry));
    } finally {
      root.removeAttribute("aria-busy");
    }
  }, every);

  function retry() {
    fill(root, loadingState());
    refresh(true);
  }

  function update() {
    if (!isPaused()) refresh();
  }

  refresh(true);
  followEvents(
    (event) => {
      if (concerns(event)) update();
    },
    update,
    filter,
    onProgress,
  );
  if (poll) {
    setInterval(() => {
      if (!document.hidden) update();
    }, poll);
  }
  return () => refresh(true);
}
