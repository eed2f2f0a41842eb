/** Types of the dashboard's scripts: API responses, translated texts and elements. Used by the type checker only. */

// Elements

export type Child = Node | string | number | false | null | undefined | Child[];

export type EventHandlers = { [Name in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[Name]) => unknown };

export interface Props {
  on?: EventHandlers;
  [attribute: string]: string | number | boolean | null | undefined | EventHandlers;
}

/** One column of a table. `head` replaces the label in the table's head. */
export interface Column<Item> {
  label: string;
  head?: Child;
  class?: string;
  cell: (item: Item) => Child;
}

export interface Table<Item> {
  node: HTMLElement;
  body: HTMLElement;
  show: (items: Item[], keyOf: (item: Item) => string | number) => void;
}

export interface JsonEditor {
  node: HTMLElement;
  changed: () => boolean;
  value: () => unknown;
}

export type Values = Record<string, unknown>;

// Forms from JSON schemas

export interface JsonSchema {
  type?: string | string[];
  format?: string;
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  additionalProperties?: boolean | JsonSchema;
  items?: JsonSchema | boolean;
  prefixItems?: JsonSchema[];
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  allOf?: JsonSchema[];
  not?: JsonSchema;
  $ref?: string;
  $defs?: Record<string, JsonSchema>;
  minimum?: number;
  exclusiveMinimum?: number;
  maximum?: number;
  exclusiveMaximum?: number;
  multipleOf?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  minItems?: number;
  maxItems?: number;
}

/** A part of a payload: its schema without references and null, and the kind of its control. */
export interface Part {
  schema: JsonSchema;
  root: JsonSchema;
  kind:
    | "text"
    | "long-text"
    | "date"
    | "date-time"
    | "integer"
    | "number"
    | "boolean"
    | "choice"
    | "object"
    | "array"
    | "json";
  nullable: boolean;
  depth: number;
}

/** An element that holds a value. `problem` is empty if the value is valid; `value` may throw if it is not. */
export interface Control {
  node: HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement;
  isBlank: () => boolean;
  value: () => unknown;
  problem: () => string;
}

/**
 * A field or a group of fields. `read` returns undefined for what is left out. `check` shows problems, false if there are
 * any. `showProblem` shows one of the part at this path, true if it is here.
 */
export interface SchemaField {
  node: HTMLElement;
  read: () => unknown;
  check: () => boolean;
  showProblem: (path: string, message: string) => boolean;
}

// API responses. Times are ISO 8601 strings.

export type Phase = "claimable" | "leased" | "blocked" | "final";

export interface Job {
  id: string;
  job_type: string;
  contract: string;
  queue: string;
  tenant_id: string;
  status: string;
  phase: Phase;
  version: number;
  due_at: string | null;
  priority: number;
  execution_no: number;
  max_retries: number;
  payload: unknown;
  result: unknown;
  error_code: string | null;
  error_message: string | null;
  idempotency_key: string | null;
  task_id: string | null;
  trace_id: string | null;
  parent_id: string | null;
  dlq_id: string | null;
  requeued_from: string | null;
  worker: string | null;
  lease_until: string | null;
  created_at: string;
  updated_at: string;
  started_at: string | null;
  finished_at: string | null;
  /** In lists: what the handler of a running job reported last. */
  progress?: { share: number | null; message: string | null } | null;
  /** The job in the words of its contract. */
  view: Record<string, unknown>;
}

/** A list as the API answers it; `next_cursor` is null on the last page. */
export interface Page<Item> {
  items: Item[];
  next_cursor: string | null;
}

/** A page of a search: everything newer than `searched_until` was searched; null: everything was. */
export interface Found<Item> extends Page<Item> {
  searched_until: string | null;
}

/** A filter of a list that the viewer saved: the query of the page's address. */
export interface SavedView {
  page: "jobs" | "dead_letters";
  name: string;
  query: string;
}

/** Dead letters of one error. `slots`: new ones over time. `group` and `pattern` are null if messages are hidden. */
export interface ErrorGroup {
  group: string | null;
  job_type: string;
  error_class: string | null;
  error_code: string;
  pattern: string | null;
  count: number;
  proposed: number;
  proposed_by: string[];
  first_at: string;
  last_at: string;
  last_id: string;
  slots: number[];
}

export interface ErrorGroupList extends Page<ErrorGroup> {
  more_groups: number;
  slots_since: string;
  slot_seconds: number;
  searched_until: string | null;
}

/** What the command palette finds. */
export interface SearchResult {
  jobs: { id: string; job_type: string; status: string }[];
  dead_letters: { dlq_id: string; job_type: string }[];
  queues: string[];
  job_types: string[];
  schedules: { id: string; name: string }[];
}

/** An event of a job's log, or a note that follows one (`note`). */
export interface JobEvent {
  seq: number;
  event: string;
  source: string | null;
  target: string;
  at: string;
  actor: string | null;
  execution_no: number;
  data: Record<string, unknown>;
  note: boolean;
}

/** An event as the live stream delivers it. */
export interface StreamEvent extends JobEvent {
  job_id: string;
  job_type: string;
  queue: string;
  tenant_id: string;
}

export type JobActionName = "cancel" | "abort" | "approve" | "reject" | "signal" | "reopen" | "requeue";

/** `request`: cancelling only requests the worker to stop; the job does not end at once. */
export interface JobAction {
  act: JobActionName;
  request?: boolean | null;
}

export interface Step {
  name: string;
  finished: boolean;
  execution_no: number;
  started_at: string;
  finished_at: string | null;
  result: unknown;
}

export interface Progress {
  share: number;
  message: string;
  execution_no: number;
  at: string;
}

export interface LogLine {
  execution_no: number;
  n: number;
  at: string;
  level: string;
  logger: string;
  message: string;
}

export interface Vote {
  person: string;
  approved: boolean;
  reason: string | null;
}

export interface Approval {
  name: string;
  summary: string | null;
  about: unknown;
  digest: string;
  roles: string[];
  quorum: number;
  missing: number;
  decision: string | null;
  votes: Vote[];
}

export interface ChildJob {
  id: string;
  name: string;
  after: string[];
  job_type: string;
  contract: string;
  status: string;
  phase: Phase;
  error_code: string | null;
  execution_no: number;
  worker: string | null;
  progress: Progress | null;
  created_at: string;
  started_at: string | null;
  finished_at: string | null;
}

export interface ChildCount {
  contract: string;
  status: string;
  phase: Phase;
  count: number;
}

export interface JobDetail {
  version: number;
  requeued_from: { kind: "dead_letter" | "job"; id: string } | null;
  requeued_as: string | null;
  acts: JobAction[];
  wait: { name: string; kind: string | null; until: string | null } | null;
  cancel_requested: boolean;
  retries: number;
  steps: number;
  has_logs: boolean;
  progress: Progress | null;
  approvals: Approval[];
  children: { total: number; counts: ChildCount[] };
}

/** Why a job is in its status. `details.also` holds further reasons. */
export interface Why {
  reason: string;
  sentence: string;
  details: WhyDetails;
}

export interface WhyDetails extends Limit {
  also?: Why[];
  status: string;
  finished_at: string | null;
  error_code: string | null;
  dlq_id: string | null;
  worker: string | null;
  lease_until: string | null;
  holder_seen: boolean;
  sweeping: boolean;
  actor: string;
  at: string;
  kind: string;
  name: string;
  steps: string[];
  until: string | null;
  since: string;
  waits_for: string;
  approval?: Approval;
  children: Record<string, number>;
  due_at: string;
  give_up_at: string | null;
  problem: string | null;
  opens_at?: string;
  held: number;
  blocking_job_id: string | null;
  location?: string;
  deadline_at: string;
  live_types: string[];
  live_queues: string[];
  workers: string[];
  busy: number;
  slots: number;
  ahead: number;
  reason?: string | null;
}

/** What the page of one job shows. */
export interface JobView {
  job: Job;
  steps: Step[];
  /** The newest part of the log, oldest entry first. */
  history: JobEvent[];
  /** The newest status changes, oldest first. */
  events: JobEvent[];
  hasOlder: boolean;
  detail: JobDetail;
  why: Why;
  contract: Contract;
}

/** A row of the approvals page; `name` is null if the job was held before its first execution. */
export interface PendingApproval {
  job_id: string;
  job_type: string;
  tenant_id: string;
  since: string;
  name: string | null;
  summary: string | null;
  about: unknown;
  digest: string | null;
  roles: string[];
  quorum: number;
  missing: number;
  deadline: string | null;
  votes?: Vote[] | null;
  may_decide: boolean;
}

export type DeadLetterStatus = "open" | "requeued" | "discarded";

export interface DeadLetter {
  dlq_id: string;
  tenant_id: string;
  job_id: string;
  contract: string;
  job_type: string;
  queue: string;
  error_class: string | null;
  error_code: string;
  error_message: string | null;
  payload_json: unknown;
  context_json: unknown;
  retry_count: number;
  status: DeadLetterStatus;
  first_failed_at: string;
  created_at: string;
  requeued_as: string | null;
  proposed_by: string | null;
  proposed_reason: string | null;
  error_group: string | null;
}

/** Result of a bulk action on dead letters. `for_two`: they need two people; `to_confirm`: somebody proposed them. */
export interface DeadLettersDone {
  matched: number;
  done: number;
  proposed: number;
  for_two: number;
  to_confirm: number;
  refused: number;
  refusals: { code: string }[];
}

/** Result of one page of a bulk action on jobs. `fitting`: jobs whose status allows the action. */
export interface BulkResult {
  matched: number;
  fitting: number;
  done: number;
  refused: number;
  refusals: { code: string }[];
  next_cursor: string | null;
}

export interface Schedule {
  id: string;
  name: string;
  tenant_id: string;
  schedule_type: "at" | "cron" | "every";
  expression: string;
  in_words: Record<string, string>;
  timezone: string | null;
  job_type: string;
  payload: unknown;
  queue: string;
  declared: boolean;
  paused: boolean;
  version: number;
  next_fire_at: string | null;
  held_back: boolean;
  retry_at: string | null;
  last_fire_at: string | null;
  last_job_id: string | null;
  fires: number;
  misfires: number;
  last_error: string | null;
}

export interface SchedulePreview {
  timezone: string;
  in_words: Record<string, string>;
  items: { fire_at: string }[];
}

export interface BackfillResult {
  fires: number;
  made: number;
  job_ids: string[];
}

export interface Pause {
  kind: string;
  name: string;
  actor: string;
  reason: string | null;
  at: string;
}

export type QueueStateName = "active" | "idle" | "paused" | "draining" | "no_worker" | "at_limit";

/** What a queue and a job type have in common. */
export interface JobGroup {
  state: QueueStateName;
  due: number;
  due_paused: number;
  later: number;
  held: number;
  oldest_due_at: string | null;
  limited_by: Limit[];
  workers: number;
  paused: Pause | null;
  paused_by: Pause[];
}

export interface Queue extends JobGroup {
  queue: string;
  job_types: string[];
  unserved_types: string[];
}

export interface JobType extends JobGroup {
  job_type: string;
  queues: string[];
  unserved_queues: string[];
}

/** A job type as workers declare it. */
export interface Declaration {
  job_type: string;
  options: Record<string, unknown>;
  payload_schema: JsonSchema | null;
}

export interface SubmitResponse {
  job: Job;
  idempotent_hit: boolean;
  warnings?: { code: string; message: string }[];
}

export interface JobKind {
  contract: string;
  queue: string;
  job_type: string;
  due: number;
  due_paused: number;
  later: number;
  held: number;
  oldest_due_at: string | null;
}

export interface RunningJob {
  id: string;
  queue: string;
  job_type: string;
  tenant_id: string;
  worker: string;
  execution_no: number;
  since: string;
  progress: { share: number; message: string | null } | null;
}

export interface ServingWorker {
  id: string;
  host: string;
  state: string;
  slots: number;
  busy: number;
}

export interface KindDetails {
  kinds: JobKind[];
  running_jobs: RunningJob[];
  serving: ServingWorker[];
  limits: Limit[];
}

export type QueueDetail = Queue & KindDetails;
export type JobTypeDetail = JobType & KindDetails;

export interface QueueList extends Page<Queue> {
  pauses: Pause[];
}

/** The jobs that a limit applies to. */
export interface LimitScope {
  queue: string | null;
  job_type: string | null;
  tenant_id: string | null;
  key: string | null;
  per: string | null;
}

export interface Limit extends LimitScope {
  concurrency: number | null;
  rate: number | null;
  period_seconds: number | null;
}

export interface Worker {
  id: string;
  live: boolean;
  state: string;
  host: string;
  pid: number;
  version: string;
  queues: string[] | null;
  job_types: string[];
  slots: number;
  busy: number;
  seen_at: string;
  held: { id: string; job_type: string; since: string }[];
  order: { act: string; actor: string } | null;
}

export interface WorkerMinute {
  at: string;
  ended_well: number;
  ended_badly: number;
  retries: number;
}

/** `recent`: what it has done since then, by minute. */
export interface WorkerDetail extends Worker {
  started_at: string;
  lease_seconds: number;
  blocked: { since: string; location: string; job_id: string | null; job_type: string | null } | null;
  running_jobs: RunningJob[];
  recent: Omit<WorkerMinute, "at"> & { since: string; seconds: number; points: WorkerMinute[] };
  at: string;
}

/** The jobs that were reclaimed from a lost worker. */
export interface WorkerRecovery {
  worker: string;
  ended_at: string;
  charged: number;
  given_up: number;
  jobs: { id: string; job_type: string; status: string }[];
}

export interface Edge {
  source: string | null;
  target: string;
  event: string;
  move: string | null;
}

export interface Contract {
  name: string;
  description: string;
  statuses: Record<string, Phase>;
  edges: Edge[];
  codes: Record<string, string | null>;
  retry: Record<string, unknown>;
}

export interface ContractSummary {
  name: string;
  description: string;
  carried: boolean;
  default: boolean;
  statuses: number;
  edges: number;
  max_retries: number;
  dead_letters: boolean;
}

export interface Violation {
  job_id: string | null;
  seq: number | null;
  rule: string;
  detail: string;
}

export interface VerifyReport {
  ok: boolean;
  jobs: number;
  events: number;
  violations: Violation[];
  warnings: Violation[];
}

export interface Verification {
  under_way: boolean;
  done: number;
  total: number;
  started_by: string | null;
  ended_at: string | null;
  error: string | null;
  report: VerifyReport | null;
}

export interface Alert {
  rule: string;
  kind?: string | null;
  subject: string;
  state: string;
  severity: string;
  value: number;
  summary: string;
  since: string | null;
  fired_at: string | null;
  resolved_at: string | null;
  acknowledged_by: string | null;
  labels: Record<string, string>;
  silenced_until: string | null;
}

export interface AlertRule {
  name: string;
  kind: string;
  severity: string;
  threshold: number;
  unit: string;
  for_seconds: number;
  window_seconds: number;
  enabled: boolean;
  meaning: string;
}

export interface Silence {
  id: string;
  rule: string;
  subject: string;
  until: string;
  actor: string;
  reason: string | null;
}

export interface Webhook {
  id: string;
  name: string;
  url: string;
  tenant_id: string | null;
  queue: string | null;
  job_type: string | null;
  contract: string | null;
  events: string[];
  phases: string[];
  payloads: boolean;
  state: "active" | "paused" | "disabled";
  backlog: number;
  failures: number;
  last_error: string | null;
  old_secret_until: string | null;
}

export interface EditedWebhook extends Webhook {
  secret: string | null;
}

export interface WebhookDelivery {
  id: string;
  event: string;
  job_id: string;
  state: "delivered" | "given up" | "due";
  attempts: number;
  last_error: string | null;
  created_at: string;
  due_at: string | null;
}

export interface AlertDelivery {
  id: string;
  rule: string;
  subject: string;
  sink: string;
  news: string;
  state: "delivered" | "given up" | "due";
  last_error: string | null;
  created_at: string;
}

export interface AuditEntry {
  subject_name: string | null;
  n: number;
  at: string;
  actor: string;
  act: string;
  subject: string;
  tenant_id: string | null;
  reason: string | null;
  data: Record<string, unknown> | null;
}

export interface Token {
  id: string;
  name: string;
  role: string;
  roles: string[];
  tenant_id: string | null;
  queues: string[];
  job_types: string[];
  shared_with: string[];
  payloads: boolean;
  valid: boolean;
  created_at: string;
  created_by: string;
  expires_at: string | null;
  expires_soon: boolean;
  revoked_at: string | null;
}

export interface Overview {
  phases: Record<Phase, number> | null;
  statuses: Record<string, Record<string, number>> | null;
  queues: Queue[];
  dead_letters: Record<string, number>;
  workers: { live: number; busy: number; slots: number } | null;
  tenant_id: string | null;
}

export type Span = "5m" | "15m" | "hour" | "6h" | "day" | "week" | "30d";

export interface Latency {
  number: number;
  mean_seconds: number | null;
  p50_seconds: number | null;
  p95_seconds: number | null;
  p99_seconds: number | null;
}

export interface SeriesSums {
  submitted: number;
  ended_well: number;
  ended_badly: number;
  retries: number;
  wait: Latency;
  run: Latency;
}

export interface Series {
  span: Span;
  at: string;
  bucket_seconds: number;
  seconds: number;
  points: (SeriesSums & { at: string; seconds: number })[];
  total: SeriesSums;
}

export interface SeriesGroup extends SeriesSums {
  name: string | null;
  finished: number[];
}

export interface SeriesGroups extends Page<SeriesGroup> {
  span: Span;
  bucket_seconds: number;
  seconds: number;
}

/** A group's sums with the time that they cover. */
export interface GroupSeries extends SeriesGroup {
  seconds: number;
}

export interface Attention {
  approvals: number;
  dead_letters: number | null;
  alerts: number | null;
}

/** An error response (RFC 9457). */
export interface ProblemBody {
  code?: string;
  detail?: string;
  field?: string;
  /** `problem`: of a part of the payload; `field`: its path, names and numbers joined by dots. */
  errors?: { field: string; problem?: string }[];
}
