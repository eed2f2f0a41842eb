// One queue.

import { startGroupPage } from "./group_page.js";
import { queueState } from "./state_badge.js";
import "../../core/shell.js";

startGroupPage({ by: "queue", path: "queues", state: (detail) => queueState(detail) });
