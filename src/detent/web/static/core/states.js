// What a page shows when there is nothing to show: still loading, empty, refused, unreachable.
import { $, fill, h } from "./dom.js";
import { t } from "./words.js";
import { follow, gently } from "./live.js";

export const empty = (title, more, ...rest) => h("div", { class: "state" }, h("h2", {}, title), more && h("p", {}, more), rest);

export const broken = (error, again) => h("div", { class: "state trouble-state", role: "alert" },
  h("h2", {}, t(error.status === 404 ? "state.not-found" : error.status === 403 ? "state.forbidden" : "state.broken")),
  h("p", {}, error.message), error.code && h("p", {}, h("code", {}, error.code)),
  again && h("button", { type: "button", on: { click: again } }, t("act.again")));

export const skeleton = () => h("div", { class: "skeleton", "aria-label": t("state.loading") }, h("i"), h("i"), h("i"), h("i"));

// A page: load data, draw it; again whenever something happened or the connection came back. What was drawn stays while
// the next look is under way, and stays, with a banner, if that look fails.
export function page({ load, draw, concerns = () => true, every = 1000, poll = 0, filter }) {
  const root = $("page");
  const banner = h("p", { class: "banner disconnected", hidden: true });
  const room = h("div");
  let drawn = false;
  root.before(banner);
  const look = async () => {
    try {
      const data = await load();
      if (!drawn) fill(root, room);
      draw(room, data);
      drawn = true;
      banner.hidden = true;
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === undefined) console.error(error);
      if (drawn) {
        banner.textContent = t("state.stale", { why: error.message });
        banner.hidden = false;
      } else fill(root, broken(error, () => { fill(root, skeleton()); again(true); }));
    } finally {
      root.removeAttribute("aria-busy");
    }
  };
  const again = gently(look, every);
  again(true);
  follow((event) => { if (concerns(event)) again(); }, { back: () => again(), filter });
  if (poll) setInterval(() => { if (!document.hidden) again(); }, poll);
  return () => again(true);
}
