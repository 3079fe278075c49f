"""The file of a SQLite database: may it be opened, is its file system safe, and is it still the file at its path?"""
