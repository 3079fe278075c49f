"""The backend for PostgreSQL 14 and newer, through psycopg 3."""
