-- Time series in slots of ten seconds, for the charts of the last hour, day and week.
CREATE TABLE series (
  slot      bigint PRIMARY KEY,
  submitted bigint NOT NULL,
  succeeded bigint NOT NULL,
  failed    bigint NOT NULL,
  retried   bigint NOT NULL,
  waits     bigint NOT NULL,
  waited    bigint NOT NULL,
  runs      bigint NOT NULL,
  ran       bigint NOT NULL
);
