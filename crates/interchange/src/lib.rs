//! Other tools' formats, one module a format.
//!
//! | module | format |
//! |---|---|
//! | [`mddout`] | the memory debug data of embedded targets, and eCos's four commands on them |

pub mod mddout;
