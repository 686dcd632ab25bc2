//! `highwater leaks` on edleak's slices.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::Context;
use highwater_interchange::edleak::{self, SliceSite, Slices};
use highwater_query::leaks::growth::Trend;
use highwater_query::leaks::growth::series::{self, Verdict};
use highwater_query::units;
use highwater_render::json::Json;
use highwater_render::spark;

use crate::output;

/// Bytes by which slices are known.
const HEAD: u64 = 4096;

/// Is this a file of slices?
pub fn is(path: &Path) -> bool {
    let mut head = Vec::new();
    File::open(path).is_ok_and(|file| file.take(HEAD).read_to_end(&mut head).is_ok())
        && edleak::is_slices(&head)
}

/// Which sites grow, largest first.
///
/// # Errors
/// The file cannot be read, or the output takes no more.
pub fn run(path: &Path, trend: Trend, json: bool, limit: usize) -> anyhow::Result<()> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let slices = edleak::read(file).with_context(|| path.display().to_string())?;
    let mut leaks: Vec<(&SliceSite, Verdict)> = slices
        .sites
        .iter()
        .filter_map(|site| {
            let (times, sizes): (Vec<f64>, Vec<i64>) = site.series(&slices).unzip();
            series::judge(trend, &times, &sizes).map(|verdict| (site, verdict))
        })
        .filter(|(_, verdict)| verdict.leak)
        .collect();
    leaks.sort_by_key(|(site, verdict)| (std::cmp::Reverse(verdict.factor), site.id));
    if slices.cut {
        output::say("the file ends early; what came before is judged");
    }
    if json { as_json(&leaks) } else { as_text(&slices, &leaks, limit) }
}

fn held(site: &SliceSite) -> i64 {
    site.points.last().map_or(0, |point| point.size)
}

fn as_text(slices: &Slices, leaks: &[(&SliceSite, Verdict)], limit: usize) -> anyhow::Result<()> {
    let mut out = output::stdout();
    let taken = slices.times.len();
    if leaks.is_empty() {
        writeln!(out, "no leaks: none of {} sites grows over {taken} slices", slices.sites.len())?;
    } else {
        writeln!(out, "{} of {} sites grow over {taken} slices", leaks.len(), slices.sites.len())?;
    }
    for (site, verdict) in leaks.iter().take(limit) {
        writeln!(out, "\n{}", site.name)?;
        let class = verdict.class.map_or(String::new(), |class| format!("{}, ", class.name()));
        write!(
            out,
            "  {class}holds {}, leak factor {}",
            units::size_text(held(site) as f64),
            verdict.factor
        )?;
        match verdict.slope.filter(|_| slices.timed) {
            Some(slope) => writeln!(out, ", {}/s", units::size_text(slope.value))?,
            None => writeln!(out)?,
        }
        let sizes: Vec<u64> = site.sizes().iter().map(|&size| u64::try_from(size).unwrap_or(0)).collect();
        writeln!(out, "  {}", spark::line(&sizes, 60, output::unicode()))?;
        for frame in site.stack.iter().skip(1) {
            match &frame.function {
                Some(function) => writeln!(out, "  from {function}")?,
                None => writeln!(out, "  from {:#x}", frame.address)?,
            }
        }
    }
    Ok(out.flush()?)
}

fn as_json(leaks: &[(&SliceSite, Verdict)]) -> anyhow::Result<()> {
    let mut json = Json::document(output::stdout(), "leaks")?;
    json.key("suspects")?;
    json.begin_array()?;
    for (at, (site, verdict)) in leaks.iter().enumerate() {
        json.begin_object()?;
        json.field_u64("rank", at as u64 + 1)?;
        let first = site.stack.first();
        json.field_opt_str("function", first.and_then(|frame| frame.function.as_deref()))?;
        json.field_null("file")?;
        json.field_null("line")?;
        json.field_opt_str("module", first.and_then(|frame| frame.module.as_deref()))?;
        json.field_str("name", &site.name)?;
        json.field_i64("bytes", held(site))?;
        json.key("methods")?;
        json.begin_array()?;
        json.str("growth")?;
        json.end_array()?;
        json.field_opt_str("class", verdict.class.map(|class| class.name()))?;
        json.field_i64("leak", verdict.factor)?;
        json.end_object()?;
    }
    json.end_array()?;
    json.finish()?;
    Ok(())
}
