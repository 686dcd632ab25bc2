//! `run --slices`: edleak's slices, written while the program runs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use highwater_event::layout::{MODULE_MAIN, MODULE_VDSO};
use highwater_event::node::Node;
use highwater_interchange::edleak::SliceFrame;
use highwater_interchange::edleak::write::{Layout, Value, Writer};
use highwater_record::live::{MakeSink, Sink, Slice, Slicing};
use highwater_record::names::{self, Fields};
use highwater_symbols::{ModuleId, ModuleInput, Symbolizer};
use highwater_trace::model::{ModuleDef, NodeDef, NodeId};

use crate::trace;

/// Frames of a stack that a slice names.
const MOST_FRAMES: usize = 256;

/// The options of slices.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Slices")]
pub struct SliceArgs {
    /// Write what each stack holds, again and again, as edleak does (JSON); %p, %n, %i as in --output
    #[arg(long, value_name = "FILE")]
    slices: Option<String>,
    /// Time between two slices: 500ms, 30s; 0 for only those of `highwater slice`
    #[arg(long, value_name = "S", default_value = "30s", value_parser = period)]
    period: Duration,
    /// edleak's file layout: of 2012, or of 2011 (no stacks)
    #[arg(long, value_name = "YEAR", default_value = "2012", value_parser = layout)]
    slice_layout: Layout,
}

fn period(text: &str) -> Result<Duration, String> {
    highwater_query::units::time(text)
        .map(Duration::from_nanos)
        .ok_or_else(|| format!("`{text}` is no length of time: 500ms, 30s, 5m"))
}

fn layout(text: &str) -> Result<Layout, String> {
    match text {
        "2012" => Ok(Layout::Of2012),
        "2011" => Ok(Layout::Of2011),
        _ => Err("write 2012 or 2011".to_owned()),
    }
}

impl SliceArgs {
    /// How to slice, if slices are wanted. `overwrite` a file that is there.
    pub fn slicing(&self, overwrite: bool) -> Option<Slicing> {
        let template = self.slices.clone()?;
        let period = Some(self.period).filter(|period| !period.is_zero());
        let layout = self.slice_layout;
        let sink: Arc<MakeSink> = Arc::new(move |whose| {
            let name = whose.exe.file_name().map(|name| name.to_string_lossy().into_owned());
            let fields = Fields { pid: whose.pid, name: name.unwrap_or_default(), image: whose.image };
            Box::new(ToFile {
                path: names::expand(&template, &fields),
                layout,
                period: period.map(|period| period.as_secs_f64()),
                // The file of an image that became this one gives way.
                overwrite: overwrite || whose.image > 0,
                writer: None,
                symbolizer: Symbolizer::new(trace::symbols()),
                modules: HashMap::new(),
                known: 0,
            })
        });
        Some(Slicing { period, sink })
    }

    /// Would the file of slices be overwritten?
    pub fn exists(&self) -> Option<PathBuf> {
        let path = self.slices.as_ref().filter(|template| !template.contains('%')).map(PathBuf::from)?;
        path.exists().then_some(path)
    }
}

/// Slices into a file.
struct ToFile {
    path: PathBuf,
    layout: Layout,
    period: Option<f64>,
    overwrite: bool,
    writer: Option<Writer>,
    symbolizer: Symbolizer,
    /// Modules that the symbolizer knows.
    modules: HashMap<u16, ModuleId>,
    /// Sites that the file has.
    known: usize,
}

impl Sink for ToFile {
    fn slice(&mut self, slice: &Slice<'_>) -> Result<(), String> {
        let fresh: Vec<Vec<SliceFrame>> = slice
            .held
            .iter()
            .skip(self.known)
            .map(|held| self.stack(held.node, slice.nodes, slice.modules))
            .collect();
        let values: Vec<Value> =
            slice.held.iter().map(|held| Value { bytes: held.bytes, blocks: held.blocks }).collect();
        let said = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let made = Writer::create(&self.path, self.layout, self.period, self.overwrite);
                none.insert(made.map_err(|error| said(&self.path, error))?)
            }
        };
        let seconds = slice.ns as f64 / 1e9;
        writer.slice(seconds, &fresh, &values).map_err(|error| said(&self.path, error))?;
        self.known = slice.held.len();
        Ok(())
    }
}

impl ToFile {
    /// The names of a stack, innermost frame first; inlined functions have
    /// frames of their own.
    fn stack(
        &mut self,
        node: NodeId,
        nodes: &HashMap<NodeId, NodeDef>,
        modules: &HashMap<u16, ModuleDef>,
    ) -> Vec<SliceFrame> {
        let mut frames = Vec::new();
        let mut at = node;
        while let Some(def) = nodes.get(&at).filter(|_| frames.len() < MOST_FRAMES) {
            at = def.parent;
            if def.module == Node::MARKER_MODULE {
                continue;
            }
            let module = modules.get(&def.module);
            let named = match module.map(|module| self.module(module)) {
                Some(id) => self.symbolizer.frames(id, def.pc, true),
                None => self.symbolizer.frames_no_module(def.pc, true),
            };
            frames.extend(named.iter().map(|frame| SliceFrame {
                address: def.pc,
                function: frame.function.as_deref().map(str::to_owned),
                module: module.map(|module| module.path.clone()),
                base: module.map_or(0, |module| module.start),
            }));
        }
        frames
    }

    fn module(&mut self, module: &ModuleDef) -> ModuleId {
        let symbolizer = &mut self.symbolizer;
        *self.modules.entry(module.index).or_insert_with(|| {
            symbolizer.add_module(ModuleInput {
                path: &module.path,
                build_id: &module.build_id,
                bias: module.bias,
                start: module.start,
                end: module.end,
                is_main: module.flags & MODULE_MAIN != 0,
                is_vdso: module.flags & MODULE_VDSO != 0,
            })
        })
    }
}
