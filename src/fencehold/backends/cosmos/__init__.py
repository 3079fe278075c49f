"""Azure Cosmos DB: leases and items as documents, written by etag, judged by the server's clock."""
