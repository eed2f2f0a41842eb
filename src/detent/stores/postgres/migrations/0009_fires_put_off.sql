-- Schedules give their jobs a deadline, and a fire that had no room is tried again later.

ALTER TABLE schedules ADD COLUMN deadline bigint CHECK (deadline > 0);
ALTER TABLE schedules ADD COLUMN retry_at bigint CHECK (retry_at IS NULL OR next_fire_at IS NOT NULL);
DROP INDEX schedules_next;
-- What fires, or is tried again, next.
CREATE INDEX schedules_next ON schedules (coalesce(retry_at, next_fire_at)) WHERE next_fire_at IS NOT NULL;
