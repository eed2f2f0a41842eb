// A list that stays still while somebody reads it. Live updates change its rows in place; new rows are announced and
// shown when the viewer asks for them. A list keeps at most one page of rows in memory.

/** @import { Found } from "../types.d.ts" */

import { fill, h } from "../core/dom.js";
import { timeElement } from "../core/time.js";
import { formatNumber, richText, t } from "../core/words.js";
import { button } from "./elements.js";

export const PAGE_SIZE = 50;
// The API searches a part of the rows per request and may find none in it.
const MOST_SEARCH_REQUESTS = 60;

/** Says how many rows are new; they are shown when the viewer asks for them. @param {() => void} show */
export function newRowsAnnouncement(show) {
  const node = h("div", { class: "new-rows", role: "status" });
  /** @param {number} n */
  const announce = (n) => {
    const number = n >= PAGE_SIZE ? `${formatNumber(PAGE_SIZE)}+` : formatNumber(n);
    const text = n ? t("list.new", { n, number }) : "";
    if (text !== node.textContent) fill(node, n > 0 && button(text, show, { id: "show-new", class: "tiny" }));
  };
  return { node, announce };
}

/**
 * @template Item
 * @param {object} options
 * @param {(item: Item) => string} options.keyOf ids are ordered by time
 * @param {(cursor: string | undefined) => Promise<Found<Item>>} options.loadPage
 * @param {(ids: string[]) => Promise<Item[]>} options.loadRows the current state of these rows
 * @param {() => void} options.refresh
 * @param {string[]} [options.cursors] of the pages from the newest to the one shown
 * @param {(cursors: string[]) => void} [options.onCursors]
 */
export function liveList({ keyOf, loadPage, loadRows, refresh, cursors = [], onCursors = () => {} }) {
  /** @type {Item[]} */
  let items = [];
  /** @type {Found<Item>} */
  let page = { items: [], next_cursor: null, searched_until: null };
  let replacing = true, version = 0, paused = false, searching = cursors.length === 0;
  let searches = 0;

  const { node: announcement, announce } = newRowsAnnouncement(showNewest);
  const pauseButton = button("", () => {
    paused = !paused;
    drawPause();
    if (!paused) refresh();
  }, { class: "tiny", id: "pause-updates" });

  function drawPause() {
    pauseButton.setAttribute("aria-pressed", String(paused));
    pauseButton.textContent = t(paused ? "list.resume" : "list.pause");
  }
  drawPause();

  /** Load the first page instead of the rows that are shown. */
  function restart() {
    cursors = [];
    onCursors(cursors);
    announce(0);
    replacing = searching = true;
    searches = 0;
    version += 1;
    refresh();
  }

  function showNewest() {
    restart();
    window.scrollTo({ top: 0 });
  }

  async function loadShown() {
    const ids = items.map(keyOf);
    const [rows, newest] = await Promise.all([loadRows(ids), cursors.length ? null : loadPage(undefined)]);
    const byId = new Map(rows.map((row) => [keyOf(row), row]));
    const shownIds = new Set(ids), last = ids.length < PAGE_SIZE ? "" : ids.at(-1) ?? "";
    const added = newest?.items.filter((item) => !shownIds.has(keyOf(item)) && keyOf(item) > last) ?? [];
    return { rows: items.map((item) => byId.get(keyOf(item)) ?? item), added: added.length };
  }

  /**
   * An empty page is followed to the next one, and drawn before: a search in millions of rows shows how far it is.
   * @param {Found<Item>} loaded
   */
  function searchOn({ items: found, next_cursor }) {
    if (found.length || !next_cursor || searches >= MOST_SEARCH_REQUESTS) {
      searching = false;
      if (!found.length && !next_cursor) cursors = [];
    } else {
      searches += 1;
      replacing = true;
      cursors.push(next_cursor);
      setTimeout(refresh);
    }
    onCursors(cursors);
  }

  return {
    announcement,
    pauseButton,
    restart,
    /** Load the same page again, for example after an action of the viewer. */
    reload: () => {
      replacing = true;
      version += 1;
      refresh();
    },
    rows: () => items,
    /**
     * Change a row that is shown; false if it is not, or if updates are paused.
     * @param {string} key
     * @param {Partial<Item>} change
     */
    change(key, change) {
      const index = paused ? -1 : items.findIndex((item) => keyOf(item) === key);
      if (index >= 0) items = items.with(index, { ...items[index], ...change });
      return index >= 0;
    },
    isPaused: () => paused,
    isSearching: () => searching,
    pageNumber: () => cursors.length + 1,
    async load() {
      const started = version;
      if (!replacing && items.length) {
        const { rows, added } = await loadShown();
        return { started, rows, added, loaded: null };
      }
      const loaded = await loadPage(cursors.at(-1));
      return { started, rows: loaded.items, added: 0, loaded };
    },
    /**
     * Take over what was loaded; false if the viewer has asked for something else in the meantime.
     * @param {{ started: number, rows: Item[], added: number, loaded: Found<Item> | null }} data
     */
    apply({ started, rows, added, loaded }) {
      if (started !== version) return false;
      if (loaded) {
        page = loaded;
        replacing = false;
        if (searching) searchOn(loaded);
      }
      items = rows;
      announce(added);
      return true;
    },
    /** Links to newer and older rows, and how far the search looked; null for an empty list. */
    foot() {
      const older = page.next_cursor;
      if (!items.length && !cursors.length && !older) return null;
      const turn = () => {
        replacing = true;
        version += 1;
        onCursors(cursors);
        refresh();
        window.scrollTo({ top: 0 });
      };
      const onNewer = () => {
        cursors.pop();
        turn();
      };
      const onOlder = () => {
        if (older) cursors.push(older);
        turn();
      };
      const isPartly = older !== null && page.items.length < PAGE_SIZE && page.searched_until !== null;
      return [
        button(`← ${t("pages.newer")}`, onNewer, { disabled: !cursors.length, "data-focus": "newer" }),
        h(
          "span",
          { class: "soft" },
          t("pages.number", { n: cursors.length + 1 }),
          isPartly && [" · ", richText("list.searched-until", { time: timeElement(page.searched_until) })],
        ),
        button(t(isPartly ? "list.search-on" : "pages.older") + " →", onOlder, {
          disabled: !older,
          "data-focus": "older",
        }),
      ];
    },
    hasMore: () => page.next_cursor !== null,
  };
}
