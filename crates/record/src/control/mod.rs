//! Control of a live recording through a Unix socket that only its owner can
//! open: marks, status, the end of the recording.
//!
//! | module | holds |
//! |---|---|
//! | [`protocol`] | requests and replies: one JSON object a line |
//! | [`place`] | where sockets are, and whose |
//! | [`server`] | the recorder's side, looked at in its own loop |
//! | [`client`] | the command's side: finding recordings and asking them |

pub mod client;
pub mod place;
pub mod protocol;
pub mod server;

use crate::image::Image;

pub use client::{ControlError, Recording, Which};
pub use protocol::{Reply, Request, Scanned, Status};
pub use server::{Caller, Server};

/// Answers what has been asked of a recording; who asked for its end, if
/// somebody did: that answer is the caller's, when the trace is complete.
pub fn serve(server: &mut Server, image: &mut Image) -> Option<Caller> {
    server.reply_later();
    while let Some((caller, request)) = server.next_request() {
        let reply = match request {
            Request::Mark { name } => mark(image, &name),
            Request::Status => Reply::Status(image.status()),
            Request::Scan => match image.scan_now() {
                Ok(reach) => Reply::Scanned(Scanned::of(&reach)),
                Err(reason) => Reply::Refused { reason: format!("not scanned: {reason}") },
            },
            Request::Stop => return Some(caller),
            Request::Slice => match image.slice() {
                Some(answer) => {
                    server.wait_for(caller, answer, image.status().ns);
                    continue;
                }
                None => Reply::Refused { reason: "it makes no slices; record with --slices FILE".to_owned() },
            },
        };
        server.reply(caller, &reply);
    }
    None
}

fn mark(image: &mut Image, name: &str) -> Reply {
    let refused = |reason: &str| Reply::Refused { reason: reason.to_owned() };
    if name.is_empty() || name.len() > protocol::MAX_NAME {
        return refused("a mark's name has 1 to 1024 bytes");
    }
    if name.chars().any(char::is_control) {
        return refused("a mark's name has no control characters");
    }
    match image.mark(name) {
        Ok(ns) => Reply::Marked { ns },
        Err(reason) => Reply::Refused { reason },
    }
}
