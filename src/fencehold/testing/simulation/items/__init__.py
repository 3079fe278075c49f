"""Three processes hold the same items with our own Items, `async with item` and processor."""
