//! Other tools' formats, one module a format.
//!
//! | module | format |
//! |---|---|
//! | [`dtrace`] | the text of the DTrace script that `findleaks` reads |
//! | [`mddout`] | the memory debug data of embedded targets, and eCos's four commands on them |

pub mod dtrace;
pub mod mddout;
