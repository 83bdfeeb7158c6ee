"""What the tests stand on: a proxy that does harm, a harness that cancels everywhere, waiting by observation."""
