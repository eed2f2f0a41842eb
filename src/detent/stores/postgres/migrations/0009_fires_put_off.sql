-- Deadlines for jobs of schedules, and a retry time for fires that a quota refused.

ALTER TABLE schedules ADD COLUMN deadline bigint CHECK (deadline > 0);
ALTER TABLE schedules ADD COLUMN retry_at bigint CHECK (retry_at IS NULL OR next_fire_at IS NOT NULL);
DROP INDEX schedules_next;
-- Schedules by the time of their next fire or retry.
CREATE INDEX schedules_next ON schedules (coalesce(retry_at, next_fire_at)) WHERE next_fire_at IS NOT NULL;
