-- name: foreign
-- Whether there is something of these names that we did not make. Without a schema in its name the table is made in the
-- first one of the search path, so one further down is not in the way.
SELECT EXISTS (
    SELECT FROM pg_class
     WHERE oid IN (to_regclass(:table), to_regclass(:table || '_token'), to_regclass(:table || '_place'))
       AND (strpos(:table, '.') > 0 OR relnamespace = to_regnamespace(quote_ident(current_schema())))
);
