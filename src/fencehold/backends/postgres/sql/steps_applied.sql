-- name: steps_applied
SELECT step FROM fencehold_schema WHERE component = :component;
