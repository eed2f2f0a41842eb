-- How many executions of a job were lost in a row. From two on the job is a suspect: it is claimed alone, from lanes of
-- its own with the rank 255, whatever its priority.

ALTER TABLE jobs ADD COLUMN losses integer NOT NULL DEFAULT 0 CONSTRAINT jobs_losses CHECK (losses >= 0);
-- Columns that describe a job never change. Of its lane only the rank does: a wrong lane would change the order of claims.
DROP TRIGGER jobs_fixed ON jobs;
CREATE TRIGGER jobs_fixed
  AFTER UPDATE OF id, contract, job_type, queue, tenant_id, priority, limit_key, payload, created_at ON jobs
  FOR EACH STATEMENT EXECUTE FUNCTION detent_refuse('jobs: what a job is made of does not change');
CREATE TRIGGER jobs_lane AFTER UPDATE OF lane ON jobs FOR EACH ROW
  WHEN (NEW.lane <> (CASE WHEN NEW.losses >= 2 THEN 255 ELSE 100 - NEW.priority END::bigint << 55)
    + (OLD.lane & 36028797018963967))
  EXECUTE FUNCTION detent_refuse('jobs: what a job is made of does not change');
