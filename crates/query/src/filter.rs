//! `-F key=value`: which events and blocks a view shows.

use highwater_event::api::ApiKind;
use highwater_event::node::NodeId;
use highwater_replay::LiveBlock;
use highwater_trace::model::ThreadNo;

use crate::glob;
use crate::session::Session;
use crate::units;

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Thread number, kernel id or name pattern.
    pub thread: Option<String>,
    /// Smallest size, bytes.
    pub size_min: Option<u64>,
    /// Greatest size, bytes.
    pub size_max: Option<u64>,
    /// First seqno.
    pub seqno_min: Option<u64>,
    /// Last seqno.
    pub seqno_max: Option<u64>,
    /// Earliest time, ns.
    pub time_min: Option<u64>,
    /// Latest time, ns.
    pub time_max: Option<u64>,
    /// Lowest address.
    pub ptr_min: Option<u64>,
    /// Highest address.
    pub ptr_max: Option<u64>,
    /// Entry points, by name (`malloc`, `new*`).
    pub api: Option<String>,
    /// A function of the stack.
    pub function: Option<String>,
    /// A source file of the stack.
    pub file: Option<String>,
    /// A module of the stack.
    pub module: Option<String>,
    /// The function or file of the site.
    pub site: Option<String>,
    /// A function or file of the stack.
    pub stack: Option<String>,
}

/// What is filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its seqno.
    pub seqno: u64,
    /// Its time, ns.
    pub ns: u64,
    /// The block's address.
    pub addr: u64,
    /// The block's size; `None` where it is not known (a foreign free), which
    /// fits no condition on sizes.
    pub size: Option<u64>,
    /// Who.
    pub thread: ThreadNo,
    /// Through which entry point.
    pub api: ApiKind,
    /// From where.
    pub node: NodeId,
}

impl From<&LiveBlock> for Subject {
    fn from(block: &LiveBlock) -> Subject {
        Subject {
            seqno: block.seqno,
            ns: block.ns,
            addr: block.addr,
            size: Some(block.size),
            thread: block.thread,
            api: block.api,
            node: block.node,
        }
    }
}

impl Filter {
    /// Adds a condition `key=value`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!("`{text}` is no condition: write key=value, as in size_min=4k"));
        };
        let (key, value) = (key.trim(), value.trim());
        let bytes = || {
            units::size(value).ok_or_else(|| format!("`{value}` is no size: write 4096, 0x1000, 4k or 1MiB"))
        };
        let ns =
            || units::time(value).ok_or_else(|| format!("`{value}` is no time: write seconds, 120ms or 3m"));
        let number =
            || value.trim_start_matches('#').parse().map_err(|_| format!("`{value}` is no event number"));
        let pattern = || Some(value.to_string());
        match key {
            "thread" => self.thread = pattern(),
            "api" => self.api = pattern(),
            "function" => self.function = pattern(),
            "file" => self.file = pattern(),
            "module" => self.module = pattern(),
            "site" => self.site = pattern(),
            "stack" => self.stack = pattern(),
            "size_min" => self.size_min = Some(bytes()?),
            "size_max" => self.size_max = Some(bytes()?),
            "ptr_min" => self.ptr_min = Some(bytes()?),
            "ptr_max" => self.ptr_max = Some(bytes()?),
            "seqno_min" => self.seqno_min = Some(number()?),
            "seqno_max" => self.seqno_max = Some(number()?),
            "time_min" => self.time_min = Some(ns()?),
            "time_max" => self.time_max = Some(ns()?),
            _ => {
                return Err(format!(
                    "`{key}` is no filter: there are thread, size_min, size_max, seqno_min, seqno_max, \
                     time_min, time_max, ptr_min, ptr_max, api, function, file, module, site and stack"
                ));
            }
        }
        Ok(())
    }

    /// Does everything pass?
    pub fn is_empty(&self) -> bool {
        *self == Filter::default()
    }

    /// Does `subject` pass? The cheap conditions are tried first; names are
    /// looked up only where they are asked for.
    pub fn passes(&self, subject: &Subject, session: &mut Session) -> bool {
        let within = |value: u64, min: Option<u64>, max: Option<u64>| {
            min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max)
        };
        let size = match subject.size {
            Some(size) => within(size, self.size_min, self.size_max),
            None => self.size_min.is_none() && self.size_max.is_none(),
        };
        size && within(subject.seqno, self.seqno_min, self.seqno_max)
            && within(subject.ns, self.time_min, self.time_max)
            && within(subject.addr, self.ptr_min, self.ptr_max)
            && self.api.as_deref().is_none_or(|api| fits_api(api, subject.api))
            && self.thread.as_deref().is_none_or(|thread| fits_thread(thread, subject.thread, session))
            && self.fits_stack(subject.node, session)
    }

    fn fits_stack(&self, node: NodeId, session: &mut Session) -> bool {
        if [&self.function, &self.file, &self.module, &self.site, &self.stack]
            .into_iter()
            .all(Option::is_none)
        {
            return true;
        }
        let stack = session.stack(node);
        let any = |pattern: &Option<String>, of: fn(&crate::Frame) -> Option<&str>| {
            pattern.as_deref().is_none_or(|pattern| {
                stack.frames.iter().filter_map(of).any(|text| glob::matches(pattern, text))
            })
        };
        let somewhere = |pattern: &str, frame: &crate::Frame| {
            // The module's path would fit far too often; it has a filter of its own.
            glob::matches(pattern, &crate::stack::function_name(frame))
                || frame.file.as_deref().is_some_and(|file| glob::matches(pattern, file))
        };
        self.site.as_deref().is_none_or(|pattern| stack.site().is_some_and(|frame| somewhere(pattern, frame)))
            && self
                .stack
                .as_deref()
                .is_none_or(|pattern| stack.frames.iter().any(|frame| somewhere(pattern, frame)))
            && any(&self.function, crate::stack::function)
            && any(&self.file, |frame| frame.file.as_deref())
            && any(&self.module, |frame| Some(&frame.module))
    }
}

fn fits_api(pattern: &str, api: ApiKind) -> bool {
    // `new` is not `new[]`: a name without a star is the whole name.
    if pattern.contains(['*', '?']) { glob::matches(pattern, api.name()) } else { pattern == api.name() }
}

fn fits_thread(pattern: &str, thread: ThreadNo, session: &Session) -> bool {
    if let Ok(number) = pattern.parse::<u32>() {
        return number == thread || session.facts().thread(thread).is_some_and(|def| def.tid == number);
    }
    session.facts().thread(thread).is_some_and(|def| glob::matches(pattern, &def.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::made::Made;

    fn filter(text: &str) -> Filter {
        let mut filter = Filter::default();
        filter.add(text).unwrap();
        filter
    }

    #[test]
    fn conditions_hold_or_not() {
        let mut session = Made::default()
            .thread(0, 4711, "main")
            .node(1, 0, "main", "main.c", 3)
            .node(2, 1, "parse", "parse.c", 7)
            .session();
        let subject = Subject {
            seqno: 10,
            ns: 1_500_000_000,
            addr: 0x1000,
            size: Some(100),
            thread: 0,
            api: ApiKind::NewArray,
            node: 2,
        };
        for yes in [
            "size_min=100",
            "size_max=0x64",
            "seqno_min=#10",
            "time_max=1.5",
            "ptr_min=0x1000",
            "api=new*",
            "thread=0",
            "thread=4711",
            "thread=ma*",
            "function=main",
            "file=*.c",
            "module=app",
            "site=parse",
            "site=parse.c",
            "stack=main",
        ] {
            assert!(filter(yes).passes(&subject, &mut session), "{yes}");
        }
        for no in [
            "size_min=101",
            "api=new",
            "thread=1",
            "function=load",
            "time_min=2",
            "file=*.cc",
            "site=main",
            "site=app",
            "stack=load",
        ] {
            assert!(!filter(no).passes(&subject, &mut session), "{no}");
        }
        let unknown = Subject { size: None, ..subject };
        assert!(!filter("size_max=9999").passes(&unknown, &mut session));
        assert!(Filter::default().passes(&unknown, &mut session));
    }

    #[test]
    fn nonsense_is_answered_in_a_sentence() {
        for text in ["size", "size_min=big", "colour=red", "time_min=x", "seqno_max=y"] {
            assert!(Filter::default().add(text).is_err(), "{text}");
        }
    }
}
