//! highwater: record.
