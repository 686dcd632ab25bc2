//! highwater: replay.
