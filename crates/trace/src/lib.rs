//! highwater: trace.
