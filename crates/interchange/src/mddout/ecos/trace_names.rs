//! From a trace's return addresses to functions, lines and their text.

use std::collections::HashMap;

use highwater_event::layout::{MODULE_MAIN, MODULE_VDSO};
use highwater_symbols::{ModuleId, ModuleInput, Symbolizer};
use highwater_trace::{Trace, model};

use super::names::{Names, Place};

/// The names of a trace's addresses.
pub(super) struct TraceNames {
    symbolizer: Symbolizer,
    /// Start, end and id of each module.
    modules: Vec<(u64, u64, ModuleId)>,
    given: HashMap<u64, Vec<Place>>,
}

impl TraceNames {
    /// Those of the modules that the trace names.
    pub fn new(trace: &Trace) -> TraceNames {
        let mut symbolizer = Symbolizer::new(highwater_symbols::Options::default());
        let add = |module: &model::ModuleDef| {
            let id = symbolizer.add_module(ModuleInput {
                path: &module.path,
                build_id: &module.build_id,
                bias: module.bias,
                start: module.start,
                end: module.end,
                is_main: module.flags & MODULE_MAIN != 0,
                is_vdso: module.flags & MODULE_VDSO != 0,
            });
            (module.start, module.end, id)
        };
        let modules = trace.modules().iter().map(add).collect();
        let place = |frame: &model::NameFrame| Place {
            function: Some(frame.function.clone()).filter(|name| !name.is_empty()),
            location: Some((frame.file.clone(), frame.line)).filter(|(file, _)| !file.is_empty()),
        };
        let given = trace.names().iter();
        let given = given.map(|name| (name.pc, name.frames.iter().map(place).collect())).collect();
        TraceNames { symbolizer, modules, given }
    }
}

impl Names for TraceNames {
    fn places(&mut self, pc: u64) -> Vec<Place> {
        if let Some(given) = self.given.get(&pc) {
            return given.clone();
        }
        // Where libraries came and went, the latest at an address counts.
        let inside = self.modules.iter().rev().find(|(start, end, _)| (*start..*end).contains(&pc));
        let Some(&(.., module)) = inside else { return Vec::new() };
        let place = |frame: &highwater_symbols::Frame| Place {
            function: frame.function.as_ref().map(|name| name.to_string()),
            location: frame.file.as_ref().zip(frame.line).map(|(file, line)| (file.to_string(), line)),
        };
        self.symbolizer.frames(module, pc, true).iter().map(place).collect()
    }

    fn text(&mut self, file: &str, line: u32) -> Option<String> {
        self.symbolizer.source_line(file, line)
    }
}
