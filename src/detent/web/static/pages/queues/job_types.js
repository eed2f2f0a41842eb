// Job types: their state, jobs, throughput and percentiles of waiting and running time.

/** @import { Column, GroupSeries, JobType, Page, SeriesGroups, Table } from "../../types.d.ts" */

import { showRows, table } from "../../components/table.js";
import { get, may } from "../../core/api.js";
import { fill, h } from "../../core/dom.js";
import { startPage } from "../../core/page.js";
import { emptyState } from "../../core/states.js";
import { jobTypeUrl } from "../../core/urls.js";
import { t } from "../../core/words.js";
import { currentSpan, spanTabs } from "../metrics/spans.js";
import { NUMBER_COLUMNS, PERCENTILE_COLUMNS, withSeries } from "./group_columns.js";
import { nameFilter } from "./name_filter.js";
import { pauseButton } from "./pausing.js";
import { jobTypeState } from "./state_badge.js";
import "../../core/shell.js";

/** @typedef {JobType & { series: GroupSeries | null }} TypeRow */

/** @type {ReturnType<typeof build> | null} */
let view = null;
/** @type {TypeRow[]} */
let rows = [];

/** @param {HTMLElement} root */
function build(root) {
  const types = buildTable(), list = h("div"), filter = nameFilter(() => drawRows());
  fill(root, h("div", { class: "toolbar between" }, filter.node, spanTabs(() => refresh())), list);
  return { types, list, filter };
}

/** @returns {Table<TypeRow>} */
function buildTable() {
  /** @type {(Column<TypeRow> | false)[]} */
  const columns = [
    {
      label: t("col.type"),
      cell: ({ job_type }) => h("a", { href: jobTypeUrl(job_type), "data-focus": "open" }, job_type),
    },
    { label: t("col.state"), cell: jobTypeState },
    ...NUMBER_COLUMNS,
    ...PERCENTILE_COLUMNS,
    may("operate") && {
      label: t("col.actions"),
      class: "tight",
      cell: ({ job_type, paused }) => pauseButton("job_type", job_type, paused !== null, () => refresh()),
    },
  ];
  return table(t("page.job_types"), columns);
}

async function load() {
  /** @type {[Page<JobType>, SeriesGroups]} */
  const [types, series] = await Promise.all([
    get("job-types"),
    get("series/groups", { by: "job_type", span: currentSpan() }),
  ]);
  return { types: types.items, series };
}

function drawRows() {
  if (!view) return;
  const { list, types, filter } = view;
  const empty = () => emptyState(t("types.none"), t("jobs.none.more"));
  showRows(list, types, rows.filter(({ job_type }) => filter.matches(job_type)), ({ job_type }) => job_type, empty);
}

/**
 * @param {HTMLElement} root
 * @param {Awaited<ReturnType<typeof load>>} data
 */
function draw(root, { types, series }) {
  view ??= build(root);
  rows = withSeries(types, series, ({ job_type }) => job_type);
  drawRows();
}

const refresh = startPage({ load, draw, every: 2000, poll: 3000 });
