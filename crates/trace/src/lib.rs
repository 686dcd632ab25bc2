//! The `.hwt` trace: writer, streaming reader, index, recovery.

pub mod model;
