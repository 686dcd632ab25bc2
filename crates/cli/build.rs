//! Builds the agent.
fn main() {}
