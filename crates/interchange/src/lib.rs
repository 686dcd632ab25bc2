//! Other tools' formats, one module a format.
//!
//! | module | format |
//! |---|---|
//! | [`dtrace`] | the text of the DTrace script that `findleaks` reads |
//! | [`edleak`] | edleak's slices: the JSON of both its file layouts and of its control channel |
//! | [`import`] | files of other tools as recordings |
//! | [`mddout`] | the memory debug data of embedded targets, and eCos's four commands on them |

pub mod dtrace;
pub mod edleak;
pub mod import;
pub mod mddout;
