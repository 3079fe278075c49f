"""Items on Azure Cosmos DB: as documents, written by etag or by stored procedures."""
