"""One folder per database: a verb as that database's statement, a driver's fault as our error."""
