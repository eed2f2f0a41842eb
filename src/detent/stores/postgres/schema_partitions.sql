-- The partitions of table events, by the time in the job's id (UUIDv7: its first 48 bits are milliseconds); see ADR 0016.

-- Ids that hold no time, for example UUIDv4: everything after 2039.
CREATE TABLE detent.events_beyond PARTITION OF detent.events
  FOR VALUES FROM ('02000000-0000-0000-0000-000000000000') TO (MAXVALUE);
-- Times that have no partition, so that no insert fails.
CREATE TABLE detent.events_default PARTITION OF detent.events DEFAULT;

-- One row. days: the width of new partitions. cleaned: events of deleted jobs with a higher id may be left until their
-- partition is dropped; up to this id events are deleted with their jobs.
CREATE TABLE detent.event_partitions (
  days    detent.ordinal NOT NULL,
  cleaned uuid NOT NULL
);
INSERT INTO detent.event_partitions VALUES (7, '00000000-0000-0000-0000-000000000000');

-- The partitions that can be dropped: first_id <= job_id < end_id.
CREATE VIEW detent.event_partition_list AS
SELECT c.relname::text AS name, nullif(split_part(b.bounds, '''', 2), '')::uuid AS first_id,
  nullif(split_part(b.bounds, '''', 4), '')::uuid AS end_id, pg_total_relation_size(c.oid) AS bytes
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
-- FOR VALUES FROM ('…') TO ('…'), TO (MAXVALUE), or DEFAULT
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid)) b (bounds)
WHERE i.inhparent = 'detent.events'::regclass AND split_part(b.bounds, '''', 4) <> '';

-- Adds the partitions for this moment (microseconds) and the next two widths; returns their number. A range of which
-- events_default has rows is left out. ATTACH reads all of events_default while it is locked: nothing is done if it is
-- larger than max_bytes (NULL: any size). It does not block inserts into other partitions.
-- SECURITY DEFINER: only the owner of a table may add and drop its partitions, and workers need not be the owner.
CREATE FUNCTION detent.add_event_partitions(moment bigint, max_bytes bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
DECLARE
  width    bigint := (SELECT days::bigint * 86400000 FROM detent.event_partitions);
  from_ms  bigint := moment / 1000 / width * width;
  until_ms bigint := least(from_ms + 3 * width, 2199023255552);
  end_ms   bigint;
  first    uuid;
  upto     uuid;
  other    record;
  added    integer := 0;
BEGIN
  IF pg_relation_size('detent.events_default') > max_bytes OR 2 = (SELECT count(*) FROM (
      VALUES (moment / 1000), (until_ms - 1)) m (ms), detent.event_partition_list p
    WHERE rpad(lpad(to_hex(m.ms), 12, '0'), 32, '0')::uuid BETWEEN p.first_id AND p.end_id) THEN
    RETURN 0;
  END IF;
  LOCK TABLE ONLY detent.events IN SHARE UPDATE EXCLUSIVE MODE;  -- one process at a time
  WHILE from_ms < until_ms LOOP
    end_ms := from_ms / width * width + width;
    first := rpad(lpad(to_hex(from_ms), 12, '0'), 32, '0')::uuid;
    upto := rpad(lpad(to_hex(end_ms), 12, '0'), 32, '0')::uuid;
    SELECT p.first_id, p.end_id, ('x' || left(replace(p.end_id::text, '-', ''), 12))::bit(48)::bigint AS end_ms INTO other
    FROM detent.event_partition_list p WHERE p.first_id < upto AND p.end_id > first ORDER BY p.first_id LIMIT 1;
    IF FOUND AND other.first_id <= first THEN
      from_ms := other.end_ms;
      CONTINUE;
    ELSIF FOUND THEN  -- a partition of another width follows
      upto := other.first_id;
    END IF;
    IF NOT EXISTS (SELECT FROM detent.events_default WHERE job_id >= first AND job_id < upto) THEN
      -- PARTITION OF would lock table events against all readers and writers.
      EXECUTE format('CREATE TABLE detent.%1$I (LIKE detent.events INCLUDING ALL);'
        || 'ALTER TABLE detent.events ATTACH PARTITION detent.%1$I FOR VALUES FROM (%2$L) TO (%3$L)',
        'events_' || to_char(to_timestamp(from_ms / 1000) AT TIME ZONE 'UTC', 'YYYYMMDD'), first, upto);
      added := added + 1;
    END IF;
    from_ms := ('x' || left(replace(upto::text, '-', ''), 12))::bit(48)::bigint;
  END LOOP;
  RETURN added;
EXCEPTION WHEN lock_not_available THEN
  RETURN 0;
END $$;

-- Drops a partition; false if a job of its range exists, if some of its events are not counted yet, or if its locks
-- cannot be had at once. A transaction that adds events of this range holds a lock until its job can be seen here.
CREATE FUNCTION detent.drop_event_partition(partition text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms'
SET enable_seqscan = off SET enable_bitmapscan = on AS $$
DECLARE
  bounds    record;
  uncounted boolean;
BEGIN
  SELECT first_id, end_id INTO bounds FROM detent.event_partition_list WHERE name = partition;
  IF NOT FOUND OR EXISTS (SELECT FROM detent.jobs WHERE id >= bounds.first_id AND id < bounds.end_id) THEN
    RETURN false;
  END IF;
  EXECUTE format('SELECT EXISTS (SELECT FROM detent.%I WHERE xid >='
    || ' coalesce((SELECT position FROM detent.tails WHERE log = ''events''), 0))', partition) INTO uncounted;
  IF uncounted THEN
    RETURN false;
  END IF;
  LOCK TABLE ONLY detent.events IN ACCESS EXCLUSIVE MODE;
  IF EXISTS (SELECT FROM detent.jobs WHERE id >= bounds.first_id AND id < bounds.end_id) THEN
    RETURN false;
  END IF;
  EXECUTE format('DROP TABLE detent.%I', partition);
  RETURN true;
EXCEPTION WHEN lock_not_available OR undefined_table THEN
  RETURN false;
END $$;
REVOKE ALL ON FUNCTION detent.add_event_partitions, detent.drop_event_partition FROM PUBLIC;

SELECT detent.add_event_partitions((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, NULL);
