"""The backend for SQL Server 2016 and newer and Azure SQL Database. It runs mssql-python on threads of its own."""
