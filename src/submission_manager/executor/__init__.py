"""The leader's work: attempts, deadlines, gateways, webhooks."""
