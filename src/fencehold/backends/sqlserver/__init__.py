"""SQL Server 2016 and newer and Azure SQL Database, through mssql-python on threads of its own."""
