-- Fencing tokens for SQLite: refuses the writes of a holder that was replaced.
--
--   BEGIN IMMEDIATE;
--   INSERT INTO leasehold_fences (name, high_water) VALUES ('reports', 34)   -- the token of the lease
--     ON CONFLICT (name) DO UPDATE SET high_water = excluded.high_water;
--   UPDATE reports SET ...;
--   COMMIT;
CREATE TABLE IF NOT EXISTS leasehold_fences (
    name TEXT PRIMARY KEY,
    high_water INTEGER NOT NULL
) STRICT;

CREATE TRIGGER IF NOT EXISTS leasehold_fences_only_rise
BEFORE UPDATE OF high_water ON leasehold_fences
WHEN NEW.high_water < OLD.high_water
BEGIN
    SELECT RAISE(ABORT, 'stale fencing token: a higher one was seen');
END;
