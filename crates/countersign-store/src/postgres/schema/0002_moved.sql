-- Whether a chain moved since its last checkpoint, in a column that mostly stays what it is: so that its row, written with
-- every event, is seldom entered into an index anew.
DROP INDEX chains_moved;
ALTER TABLE chains ADD COLUMN moved boolean NOT NULL GENERATED ALWAYS AS (signed < seq) STORED;
CREATE INDEX chains_moved ON chains (name) WHERE moved;
ALTER TABLE chains SET (fillfactor = 50);
