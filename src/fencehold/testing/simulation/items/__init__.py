"""The simulation of items: three processes use the same items with our own Items, `async with item` and processor."""
