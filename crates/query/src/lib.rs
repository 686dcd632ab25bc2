//! highwater: query.
