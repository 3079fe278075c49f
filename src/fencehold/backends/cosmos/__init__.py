"""The backend for Azure Cosmos DB: leases and items are documents.

A write names the etag of the document that it replaces, so it fails if another client has changed the document. Times
are compared with the server's clock (see server_clock.py).
"""
