//! Sessions on recordings that are values, and names that came with a trace.

use std::path::Path;
use std::sync::Arc;

use highwater_event::layout::{MODULE_MAIN, MODULE_VDSO};
use highwater_symbols::{Frame, ModuleInput, Origin, Symbolizer};
use highwater_trace::Recording;
use highwater_trace::model::{ModuleDef, NameDef, Step};
use highwater_trace::reach::Scanned;
use rustc_hash::FxHashMap;

use super::{Facts, Names, Session, SessionOptions, Source};

/// Where the names of a trace with these modules come from.
pub(super) fn names(options: highwater_symbols::Options, modules: &[ModuleDef], given: &[NameDef]) -> Names {
    let mut symbolizer = Box::new(Symbolizer::new(options));
    let mut ids = FxHashMap::default();
    for module in modules {
        let id = symbolizer.add_module(ModuleInput {
            path: &module.path,
            build_id: &module.build_id,
            bias: module.bias,
            start: module.start,
            end: module.end,
            is_main: module.flags & MODULE_MAIN != 0,
            is_vdso: module.flags & MODULE_VDSO != 0,
        });
        ids.insert(module.index, id);
    }
    let given = given.iter().filter(|name| !name.frames.is_empty());
    let given = given.map(|name| {
        let module = modules.iter().find(|module| module.index == name.module);
        ((name.module, name.pc), frames(name, module))
    });
    Names::Symbols { symbolizer, modules: ids, given: given.collect() }
}

/// Names that came with the trace, as a symbolizer gives them.
fn frames(name: &NameDef, module: Option<&ModuleDef>) -> Arc<[Frame]> {
    let some = |text: &str| Some(text).filter(|text| !text.is_empty()).map(Arc::<str>::from);
    let path = module.map_or("[unknown]", |module| module.path.as_str());
    let last = name.frames.len().saturating_sub(1);
    let frames = name.frames.iter().enumerate().map(|(at, frame)| Frame {
        address: name.pc,
        function: some(&frame.function),
        raw_name: some(&frame.function),
        offset: frame.offset,
        file: some(&frame.file),
        line: Some(frame.line).filter(|&line| line != 0),
        column: None,
        module: some(&frame.module).unwrap_or_else(|| path.into()),
        module_offset: module.map(|module| name.pc.wrapping_sub(module.bias)),
        inlined: at != last,
        origin: match (frame.function.is_empty(), frame.file.is_empty()) {
            (true, _) => Origin::Unknown,
            (false, true) => Origin::Symbol,
            (false, false) => Origin::Debug,
        },
    });
    frames.collect()
}

impl Session {
    /// Takes over a recording that is in no trace file; `path` and `file_size`
    /// are those of the file that it was made of.
    pub fn of_recording(
        path: &Path,
        file_size: u64,
        recording: Recording,
        warnings: Vec<String>,
        options: SessionOptions,
    ) -> Session {
        let names = names(options.symbols, &recording.modules, &recording.names);
        let facts = Facts {
            path: path.to_path_buf(),
            file_size,
            meta: recording.meta,
            end: Some(recording.end),
            modules: recording.modules,
            threads: recording.threads,
            marks: recording.marks,
            events: recording.events.len() as u64,
            warnings,
            ..Facts::default()
        };
        let steps = recording.events.into_iter().map(Step::Event).collect();
        let nodes = recording.nodes.into_iter().map(|node| (node.id, node)).collect();
        let reach = Scanned::Not("it is another tool's recording".to_string());
        Session {
            facts,
            source: Arc::new(Source::Made { steps, nodes, reach }),
            names,
            stacks: FxHashMap::default(),
            places: FxHashMap::default(),
            asked: Default::default(),
            replay: options.replay,
            inlining: options.inlining,
            outcome: None,
            evidence: None,
            leave_alone: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use highwater_event::node::Node;
    use highwater_trace::model::{NameFrame, NodeDef};

    use super::*;

    #[test]
    fn names_that_came_with_the_trace_are_believed() {
        let pc = 0x5000;
        let frame = |function: &str, module: &str, offset| NameFrame {
            function: function.into(),
            module: module.into(),
            offset,
            ..NameFrame::default()
        };
        let inlined = NameFrame { file: "a.c".into(), line: 3, ..frame("g", "", None) };
        let recording = Recording {
            modules: vec![ModuleDef { path: "/bin/app".into(), bias: 0x1000, ..ModuleDef::default() }],
            nodes: vec![
                NodeDef { id: 1, parent: 0, pc, module: 0 },
                NodeDef { id: 2, parent: 1, pc: 1, module: Node::NO_MODULE },
            ],
            names: vec![
                NameDef { module: 0, pc, frames: vec![inlined, frame("f", "", Some(4))] },
                NameDef { module: Node::NO_MODULE, pc: 1, frames: vec![frame("h(int)", "liba.so", Some(8))] },
            ],
            ..Recording::default()
        };
        let mut session =
            Session::of_recording(Path::new("x"), 0, recording, Vec::new(), SessionOptions::default());
        let shown: Vec<String> = session.stack(2).frames.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["h(int)+0x8 (liba.so)", "g (a.c:3)", "f+0x4 (/bin/app)"]);
        let stack = session.stack(1);
        assert_eq!(stack.frames.iter().map(|f| f.inlined).collect::<Vec<_>>(), [true, false]);
        assert_eq!(stack.frames[1].module_offset, Some(0x4000));
    }
}
