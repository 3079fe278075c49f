"""Azure Cosmos DB: leases and items as documents, written by etag, decided by the server's clock."""
