//! highwater: symbols.
