-- Time series in slots of ten seconds, for the charts of the last hour, day and week.
CREATE TABLE series (
  slot      INTEGER PRIMARY KEY NOT NULL,
  submitted INTEGER NOT NULL,
  succeeded INTEGER NOT NULL,
  failed    INTEGER NOT NULL,
  retried   INTEGER NOT NULL,
  waits     INTEGER NOT NULL,
  waited    INTEGER NOT NULL,
  runs      INTEGER NOT NULL,
  ran       INTEGER NOT NULL
) STRICT;
