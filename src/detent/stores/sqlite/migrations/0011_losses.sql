-- How many executions of a job were lost in a row. From two on the job is a suspect: it is claimed alone, from lanes of
-- its own with the rank 255, whatever its priority.

ALTER TABLE jobs ADD COLUMN losses INTEGER NOT NULL DEFAULT 0 CHECK (losses >= 0);
-- Columns that describe a job never change. Of its lane only the rank does: a wrong lane would change the order of claims.
DROP TRIGGER jobs_fixed;
CREATE TRIGGER jobs_fixed
  BEFORE UPDATE OF id, contract, job_type, queue, tenant_id, priority, limit_key, payload, created_at ON jobs
BEGIN
  SELECT RAISE(ABORT, 'jobs: what a job is made of does not change');
END;
CREATE TRIGGER jobs_lane BEFORE UPDATE OF lane ON jobs
  WHEN NEW.lane <> (CASE WHEN NEW.losses >= 2 THEN 255 ELSE 100 - NEW.priority END << 55) + (OLD.lane & 36028797018963967)
BEGIN
  SELECT RAISE(ABORT, 'jobs: what a job is made of does not change');
END;
