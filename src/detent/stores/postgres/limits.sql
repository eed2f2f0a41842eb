-- Limits, priorities in turn, tenants, deadlines.

-- name: lanes_of
SELECT lane FROM jobs WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: holding
-- How many are held in each lane; relies on jobs_leased.
SELECT lane, count(*) FROM jobs WHERE phase = 'leased' GROUP BY lane;

-- name: late
-- Hot. Relies on jobs_deadline.
SELECT {columns} FROM jobs WHERE deadline_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND deadline_at <= (SELECT {clock}) AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
ORDER BY deadline_at LIMIT :limit FOR UPDATE SKIP LOCKED;
