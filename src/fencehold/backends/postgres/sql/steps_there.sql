-- name: steps_there
-- Whether steps_table has nothing to create: it needs CREATE on the schema even when the table is there. Without a schema
-- in its name the table is made in the first one of the search path, so one further down is not it.
SELECT EXISTS (
    SELECT FROM pg_class
    WHERE oid = to_regclass('fencehold_schema')
      AND (strpos('fencehold_schema', '.') > 0 OR relnamespace = to_regnamespace(quote_ident(current_schema())))
);
