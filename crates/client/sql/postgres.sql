-- Fencing tokens for PostgreSQL: refuses the writes of a holder that was replaced.
--
--   BEGIN;
--   SELECT leasehold_fence('reports', 34);   -- the token of the lease
--   UPDATE reports SET ...;
--   COMMIT;
--
-- The row of the fence is locked until the transaction ends, so of two writers the one with the lower token either
-- commits first or fails.
CREATE TABLE IF NOT EXISTS leasehold_fences (
    name text PRIMARY KEY,
    high_water bigint NOT NULL
);

CREATE OR REPLACE FUNCTION leasehold_fence(fence_name text, token bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    seen bigint;
BEGIN
    INSERT INTO leasehold_fences AS fence (name, high_water) VALUES (fence_name, token)
    ON CONFLICT (name) DO UPDATE SET high_water = greatest(fence.high_water, excluded.high_water)
    RETURNING high_water INTO seen;
    IF token < seen THEN
        RAISE EXCEPTION 'stale fencing token %: % was seen', token, seen USING ERRCODE = 'LH412';
    END IF;
    RETURN seen;
END;
$$;
