-- Event counts, alerts and their deliveries, commands to workers, expired leases.

-- name: tails
SELECT log, position, version FROM detent.tails;

-- name: lock_tails
-- Locks the positions, so that none moves until the commit.
SELECT log FROM detent.tails ORDER BY log {for_update};

-- name: first_tail
INSERT INTO detent.tails (log, position, version) VALUES (:log, 0, 0) ON CONFLICT DO NOTHING;

-- name: advance_tail
-- Compare-and-set: of several processes that counted the same part of the log, one adds it.
UPDATE detent.tails SET position = :until WHERE log = :log AND position = :position AND version = :version;

-- name: recount_tail
-- Pruning has counted events ahead of the position: a process that is counting must start again.
UPDATE detent.tails SET version = version + 1 WHERE log = :log;

-- name: count_events
-- Counts a part of the log. Index: events_xid, in SQLite the rowid.
SELECT k.lane, (k.lane >> {party_bits}) & {group_mask}, k.lane & {party_mask}, d.source, d.event, d.target, k.slot, k.number
FROM (
  SELECT lane, edge, at / :slot AS slot, count(*) AS number FROM detent.events e
  WHERE {after:e} :position AND {until:e} :until GROUP BY lane, edge, at / :slot) k
JOIN detent.edges d ON d.id = k.edge;

-- name: events_of_worker
-- At most :limit events of a part of the log: those of one worker by contract, kind and slot, the others as one row without
-- a kind. Index: events_xid, in SQLite the rowid.
SELECT coalesce(g.contract, ''), coalesce(d.source, ''), coalesce(d.event, ''), coalesce(d.target, ''), k.slot,
  CAST(sum(k.number) AS bigint), min(k.first_at)
FROM (
  SELECT CASE WHEN own THEN edge END AS edge, CASE WHEN own THEN lane_group END AS lane_group,
    CASE WHEN own THEN at / :slot END AS slot, count(*) AS number, min(at) AS first_at
  FROM (
    SELECT e.edge, e.at, (e.lane >> {party_bits}) & {group_mask} AS lane_group,
      e.actor = (SELECT a.id FROM detent.actors a WHERE a.name = :worker) AS own
    FROM detent.events e WHERE {after:e} :position AND {until:e} :until LIMIT :limit) r
  GROUP BY 1, 2, 3) k
LEFT JOIN detent.edges d ON d.id = k.edge LEFT JOIN detent.lane_groups g ON g.id = k.lane_group
GROUP BY 1, 2, 3, 4, 5;

-- name: count_hot_events
-- The same for the eight most frequent kinds of events, without grouping; the caller compares with the total.
SELECT count(*), min(at) / :slot, max(at) / :slot,
  count(*) FILTER (WHERE lane = CAST(:lane_a AS bigint) AND edge {any:SELECT id FROM detent.edges WHERE event = CAST(:event_a AS text) AND source = CAST(:source_a AS text)}),
  count(*) FILTER (WHERE lane = CAST(:lane_b AS bigint) AND edge {any:SELECT id FROM detent.edges WHERE event = CAST(:event_b AS text) AND source = CAST(:source_b AS text)}),
  count(*) FILTER (WHERE lane = CAST(:lane_c AS bigint) AND edge {any:SELECT id FROM detent.edges WHERE event = CAST(:event_c AS text) AND source = CAST(:source_c AS text)}),
  count(*) FILTER (WHERE lane = CAST(:lane_d AS bigint) AND edge {any:SELECT id FROM detent.edges WHERE event = CAST(:event_d AS text) AND source = CAST(:source_d AS text)}),
  count(*) FILTER (WHERE lane = CAST(:lane_e AS bigint) AND edge {any:SELECT id FROM detent.edges WHERE event = CAST(:event_e AS text) AND source = CAST(:source_e AS text)}),
  count(*) FILTER (WHERE lane = CAST(:lane_f AS bigint) AND edge {any:SELECT id FROM detent.edges WHERE event = CAST(:event_f AS text) AND source = CAST(:source_f AS text)}),
  count(*) FILTER (WHERE lane = CAST(:lane_g AS bigint) AND edge {any:SELECT id FROM detent.edges WHERE event = CAST(:event_g AS text) AND source = CAST(:source_g AS text)}),
  count(*) FILTER (WHERE lane = CAST(:lane_h AS bigint) AND edge {any:SELECT id FROM detent.edges WHERE event = CAST(:event_h AS text) AND source = CAST(:source_h AS text)})
FROM detent.events e WHERE {after:e} :position AND {until:e} :until;

-- name: count_notes
-- Refused moves are counted by contract, queue and job type.
SELECT NULL, CASE name WHEN 'move.refused' THEN coalesce((SELECT (lane >> {party_bits}) & {group_mask} FROM detent.jobs j
  WHERE j.id = n.job_id), 0) ELSE 0 END, 0, '', name, '', at / :slot, count(*)
FROM detent.notes n WHERE {after:n} :position AND {until:n} :until GROUP BY 2, name, at / :slot;

-- name: count_going_events
-- Events of these jobs that are not counted yet; they are about to be pruned.
SELECT lane, (lane >> {party_bits}) & {group_mask}, lane & {party_mask}, coalesce(source, ''), event, target, at / :slot, count(*)
FROM detent.event_list e WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids})
  AND {after:e} coalesce((SELECT position FROM detent.tails WHERE log = 'events'), 0)
GROUP BY lane, source, event, target, at / :slot;

-- name: count_going_notes
SELECT NULL, CASE name WHEN 'move.refused' THEN coalesce((SELECT (lane >> {party_bits}) & {group_mask} FROM detent.jobs j
  WHERE j.id = n.job_id), 0) ELSE 0 END, 0, '', name, '', at / :slot, count(*)
FROM detent.notes n WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids})
  AND {after:n} coalesce((SELECT position FROM detent.tails WHERE log = 'notes'), 0)
GROUP BY 2, name, at / :slot;

-- name: tallies
SELECT log, lane_group, party, source, event, target, number FROM detent.tallies ORDER BY log, lane_group, party, source, event;

-- name: add_tallies
INSERT INTO detent.tallies AS tallies (log, lane_group, party, source, event, target, number)
SELECT CAST(:log AS text), CAST(value ->> 0 AS bigint), CAST(value ->> 1 AS bigint), value ->> 2, value ->> 3, value ->> 4,
  CAST(value ->> 5 AS bigint) FROM {rows:rows} WHERE true
ON CONFLICT (log, lane_group, party, source, event, target) DO UPDATE SET number = tallies.number + excluded.number;

-- name: tally_slots
SELECT slot, log, lane_group, party, source, event, target, number FROM detent.tally_slots WHERE slot >= :since;

-- name: add_tally_slots
INSERT INTO detent.tally_slots AS tally_slots (slot, log, lane_group, party, source, event, target, number)
SELECT CAST(value ->> 0 AS bigint), CAST(:log AS text), CAST(value ->> 1 AS bigint), CAST(value ->> 2 AS bigint), value ->> 3,
  value ->> 4, value ->> 5, CAST(value ->> 6 AS bigint) FROM {rows:rows} WHERE true
ON CONFLICT (slot, log, lane_group, party, source, event, target) DO UPDATE
SET number = tally_slots.number + excluded.number;

-- name: drop_tally_slots
DELETE FROM detent.tally_slots WHERE slot < :before;

-- name: lane_parties
SELECT id, tenant_id FROM detent.lane_parties;

-- name: first_turn
INSERT INTO detent.periodic_runs (name, at) VALUES (:name, 0) ON CONFLICT DO NOTHING;

-- name: take_turn
-- Compare-and-set: one process per period.
UPDATE detent.periodic_runs SET at = :now WHERE name = :name AND at <= :latest;

-- name: periodic_runs
SELECT name, at FROM detent.periodic_runs;

-- name: alerts
SELECT {alert_columns} FROM detent.alerts ORDER BY rule, subject;

-- name: add_alert
INSERT INTO detent.alerts ({alert_columns}) VALUES ({alert_places}) ON CONFLICT DO NOTHING;

-- name: change_alert
-- Compare-and-set on version; the caller checks that one row changed.
UPDATE detent.alerts SET state = :state, severity = :severity, value = :value, summary = :summary, since = :since,
  fired_at = :fired_at, clear_since = :clear_since, resolved_at = :resolved_at, updated_at = :updated_at,
  episode = :episode, version = :version, acknowledged_by = :acknowledged_by, acknowledged_at = :acknowledged_at
WHERE rule = :rule AND subject = :subject AND version = :version - 1;

-- name: drop_alert
DELETE FROM detent.alerts WHERE rule = :rule AND subject = :subject AND version = :version;

-- name: add_delivery
INSERT INTO detent.deliveries ({delivery_columns}) VALUES ({delivery_places});

-- name: queue_deliveries
-- [id, rule, subject, sink, body] each, due now. An event that is read again is sent again under the same id.
INSERT INTO detent.deliveries (id, rule, subject, sink, body, created_at, due_at, attempts)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, CAST(:now AS bigint), CAST(:now AS bigint), 0
FROM {rows:rows} WHERE true
ON CONFLICT (id) DO UPDATE SET created_at = excluded.created_at, due_at = excluded.due_at, attempts = 0, delivered_at = NULL;

-- name: due_deliveries
-- Indexes: deliveries_due, deliveries_order. Of several about one subject to one sink, the first.
SELECT {delivery_columns} FROM detent.deliveries d WHERE d.sink {any:SELECT value FROM {texts:sinks}} AND d.due_at <= :now
AND NOT EXISTS (
  SELECT 1 FROM detent.deliveries e WHERE e.due_at IS NOT NULL AND e.sink = d.sink AND e.subject = d.subject AND e.id < d.id)
ORDER BY d.due_at LIMIT :limit;

-- name: due_sinks
-- Those of these sinks that have a due delivery. Index: deliveries_due.
SELECT s.value FROM {texts:sinks} s WHERE EXISTS (
  SELECT 1 FROM detent.deliveries d WHERE d.sink = s.value AND d.due_at <= :now);

-- name: pending_deliveries
-- Index: deliveries_due.
SELECT s.value, (SELECT count(*) FROM detent.deliveries d WHERE d.sink = s.value AND d.due_at IS NOT NULL) FROM {texts:sinks} s;

-- name: deliveries
-- Those of alerts; the ids of deliveries to webhooks begin with msg_. Index: primary key.
SELECT {delivery_columns} FROM detent.deliveries WHERE id < 'msg_' ORDER BY id DESC LIMIT :limit;

-- name: deliveries_to
-- Index: deliveries_sink.
SELECT {delivery_columns} FROM detent.deliveries WHERE sink = :sink AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: take_delivery
-- Compare-and-set: one process at a time delivers it; if it dies, another process retries after :until.
UPDATE detent.deliveries SET attempts = attempts + 1, due_at = :until WHERE id = :id AND attempts = :attempts;

-- name: end_delivery
UPDATE detent.deliveries SET due_at = :due_at, delivered_at = :delivered_at, last_error = :last_error
WHERE id = :id AND attempts = :attempts;

-- name: drop_deliveries
DELETE FROM detent.deliveries WHERE due_at IS NULL AND created_at < :before;

-- name: clear_bodies
-- Index: deliveries_sink.
UPDATE detent.deliveries SET body = 'null' WHERE sink = :sink;

-- name: drop_old_deliveries
-- All ended ones but the newest :keep. Index: deliveries_sink.
DELETE FROM detent.deliveries WHERE sink = :sink AND due_at IS NULL AND id <= (
  SELECT id FROM detent.deliveries WHERE sink = :sink AND due_at IS NULL ORDER BY id DESC LIMIT 1 OFFSET :keep);

-- name: drop_deliveries_to
DELETE FROM detent.deliveries WHERE sink = :sink;

-- name: replay_deliveries
-- Index: deliveries_sink. delivery '': all of them.
UPDATE detent.deliveries SET due_at = :now, attempts = 0, delivered_at = NULL, last_error = NULL
WHERE sink = :sink AND created_at >= :since AND CAST(:delivery AS text) IN ('', id);

-- name: make_due
UPDATE detent.deliveries SET due_at = :now WHERE sink = :sink AND due_at > :now;

-- name: webhooks
SELECT {webhook_columns} FROM detent.webhooks ORDER BY id {for_update};

-- name: put_webhook
-- Leaves state, failures and position of one that exists: a request that ends meanwhile stores them.
INSERT INTO detent.webhooks ({webhook_columns}) VALUES ({webhook_places})
ON CONFLICT (id) DO UPDATE SET name = excluded.name, url = excluded.url, secret = excluded.secret, queue = excluded.queue,
  job_type = excluded.job_type, contract = excluded.contract, events = excluded.events, phases = excluded.phases,
  payloads = excluded.payloads, old_secret = excluded.old_secret, old_secret_until = excluded.old_secret_until;

-- name: change_webhook
-- Everything that changes but the position.
UPDATE detent.webhooks SET state = :state, failures = :failures, failing_since = :failing_since, retry_at = :retry_at,
  last_error = :last_error WHERE id = :id;

-- name: move_webhook
-- Compare-and-set if :expected is not empty: one process queues the events up to the new position.
UPDATE detent.webhooks SET position = :position WHERE id = :id AND CAST(:expected AS text) IN ('', position);

-- name: drop_webhook
DELETE FROM detent.webhooks WHERE id = :id;

-- name: silences
SELECT {silence_columns} FROM detent.alert_silences ORDER BY until, id;

-- name: add_silence
INSERT INTO detent.alert_silences ({silence_columns}) VALUES ({silence_places});

-- name: drop_silence
DELETE FROM detent.alert_silences WHERE id = :id;

-- name: drop_silences
DELETE FROM detent.alert_silences WHERE until < :before;

-- name: put_order
INSERT INTO detent.worker_commands (worker, act, actor, reason, at) VALUES (:worker, :act, :actor, :reason, :at)
ON CONFLICT (worker) DO UPDATE SET act = excluded.act, actor = excluded.actor, reason = excluded.reason, at = excluded.at;

-- name: order_of
SELECT worker, act, actor, reason, at FROM detent.worker_commands WHERE worker = :worker;

-- name: orders
SELECT worker, act, actor, reason, at FROM detent.worker_commands;

-- name: drop_order
DELETE FROM detent.worker_commands WHERE worker = :worker;

-- name: drop_orders
-- Commands that no worker has read.
DELETE FROM detent.worker_commands WHERE at < :before;

-- name: drop_workers
-- Workers whose last heartbeat is older than :before.
DELETE FROM detent.workers WHERE seen_at < :before;

-- name: add_loss
INSERT INTO detent.losses ({loss_columns}) VALUES ({loss_places}) ON CONFLICT DO NOTHING;

-- name: losses
-- Index: losses_at.
SELECT {loss_columns} FROM detent.losses WHERE at >= :since ORDER BY at DESC, job_id LIMIT :limit;

-- name: drop_losses
DELETE FROM detent.losses WHERE at < :before;

-- name: held_jobs
-- The jobs that workers hold: all, or of one queue or type.
SELECT id, worker, contract, queue, job_type, tenant_id, execution_no, updated_at, lease_until
FROM detent.lease_list WHERE {where} ORDER BY lease_until LIMIT :limit;

-- name: held_by
-- The jobs that one worker holds.
SELECT id, worker, contract, queue, job_type, tenant_id, execution_no, updated_at, lease_until
FROM detent.lease_list WHERE worker = :worker ORDER BY lease_until LIMIT :limit;

-- name: long_held
-- Extending a lease does not change updated_at, so it is the start of the execution.
SELECT queue, job_type, count(*), min(updated_at) FROM detent.lease_list GROUP BY queue, job_type;

-- name: missed_schedules
-- Schedules whose fire is overdue, or that missed a fire since :since.
SELECT tenant_id, name, next_fire_at, misfires, last_misfire_at, last_error FROM detent.schedules
WHERE next_fire_at <= :now OR last_misfire_at >= :since ORDER BY next_fire_at LIMIT 1000;
