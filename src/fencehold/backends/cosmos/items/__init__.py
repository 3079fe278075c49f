"""Items on Azure Cosmos DB."""
