-- name: kinds
-- One step of the index per kind, however many items there are.
WITH RECURSIVE found (kind) AS (
    SELECT min(kind)::text COLLATE "C" FROM fencehold_items
    UNION ALL
    SELECT (SELECT min(i.kind)::text COLLATE "C" FROM fencehold_items AS i WHERE i.kind > found.kind) FROM found WHERE found.kind IS NOT NULL
)
SELECT kind FROM found WHERE kind IS NOT NULL ORDER BY kind;
