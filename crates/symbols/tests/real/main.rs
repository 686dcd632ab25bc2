//! Real programs, compiled on the spot, whose functions and lines are known.

mod cache;
mod damaged;
mod debug_sections;
mod missing;
mod names;
mod separate_files;
mod support;
