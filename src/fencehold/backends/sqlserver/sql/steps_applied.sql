-- name: steps_applied
DECLARE @component nvarchar(64) = :component;
SELECT step FROM fencehold_schema WHERE component = @component;
