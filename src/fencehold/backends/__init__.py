"""One folder for each kind of database. A backend runs our verbs as statements and turns driver errors into ours."""
