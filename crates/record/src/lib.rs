//! The recorder: launches a target, drains its rings, writes its trace.
//!
//! | module | holds |
//! |---|---|
//! | [`agent_file`] | putting the agent's shared object where the loader finds it |
//! | [`program`] | what kind of program is about to run, and what that means |
//! | [`launch`] | fork and exec, leaving no trace of us in the child |
//! | [`memory`] | the memory shared with the target |
//! | [`drain`] | rings to trace: one epoch at a time |
//! | [`thin`] | recordings that keep fewer events than there were |
//! | [`image`] | one program image from attach to its end |
//! | [`run`] | a whole run: the chain of images, signals, exit status |
//! | [`by_hand`] | the recorder that an agent started itself |
//! | [`scan`] | a scan of the target's memory for unreachable blocks |
//! | [`process`] | `/proc`: resident memory, children, exec |
//! | [`counted`] | what the target's threads counted by themselves |
//! | [`control`] | the socket of a live recording: marks, status, stop |
//! | [`live`] | a replay of what is being recorded, for slices |
//! | [`lsan`] | what the program tells LeakSanitizer about its leaks |
//! | [`limits`] | how much memory the target may have |
//! | [`names`] | output file names |
//! | [`signals`] | passing signals on, waking up when the target ends |

pub mod agent_file;
pub mod by_hand;
pub mod control;
pub mod counted;
pub mod drain;
pub mod error;
pub mod file_bytes;
pub mod image;
pub mod launch;
pub mod limits;
pub mod live;
pub mod lsan;
pub mod memory;
pub mod names;
pub mod process;
pub mod program;
pub mod run;
pub mod scan;
pub mod signals;
pub mod thin;

pub use error::RecordError;
pub use highwater_event::counted::Counted;
pub use run::{Options, Outcome, Status};
