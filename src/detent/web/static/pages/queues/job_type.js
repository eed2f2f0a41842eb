// One job type.

import { startGroupPage } from "./group_page.js";
import { jobTypeState } from "./state_badge.js";
import "../../core/shell.js";

startGroupPage({ by: "job_type", path: "job-types", state: (detail) => jobTypeState(detail) });
