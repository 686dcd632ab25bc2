//! highwater: agent.
