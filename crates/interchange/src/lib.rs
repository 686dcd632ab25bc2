//! highwater: interchange.
