//! `highwater leaks` on edleak's slices.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::Context;
use highwater_interchange::edleak::{self, SliceFrame, SliceSite, Slices};
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
    if json { as_json(&slices, &leaks) } else { as_text(&slices, &leaks, limit) }
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

/// The document `highwater.leaks/1`. What slices do not tell is null: files, lines,
/// numbers of blocks.
fn as_json(slices: &Slices, leaks: &[(&SliceSite, Verdict)]) -> anyhow::Result<()> {
    let mut json = Json::document(output::stdout(), "leaks")?;
    // A site of which the last slice says nothing holds nothing any more.
    let last = slices.times.len().saturating_sub(1);
    let at_the_end = |site: &&SliceSite| site.points.last().is_some_and(|point| point.slice as usize == last);
    let live =
        slices.sites.iter().filter(at_the_end).map(|site| held(site).max(0)).fold(0, i64::saturating_add);
    json.field_i64("live_bytes", live)?;
    json.field_null("live_blocks")?;
    json.field_bool("complete", !slices.cut)?;
    json.field_str("by", "site")?;
    json.key("suspects")?;
    json.begin_array()?;
    for (at, (site, verdict)) in leaks.iter().enumerate() {
        json.begin_object()?;
        json.field_u64("rank", at as u64 + 1)?;
        json.field_str("verdict", "GROWTH")?;
        json_site(&mut json, site)?;
        json.key("methods")?;
        json.begin_array()?;
        json.str("growth")?;
        json.end_array()?;
        json.field_null("confidence")?;
        let class = verdict.class.map(|class| class.name());
        let how = class.map_or(String::new(), |class| format!("{class}, "));
        json.field_str("reason", &format!("grows: {how}leak factor {}", verdict.factor))?;
        json.field_opt_str("class", class)?;
        json.field_i64("leak", verdict.factor)?;
        json.end_object()?;
    }
    json.end_array()?;
    json.key("sites")?;
    json.begin_array()?;
    for site in &slices.sites {
        json.begin_object()?;
        json_site(&mut json, site)?;
        json.end_object()?;
    }
    json.end_array()?;
    json.finish()?;
    Ok(())
}

fn json_site<W: Write>(json: &mut Json<W>, site: &SliceSite) -> std::io::Result<()> {
    json_frame(json, site.stack.first())?;
    json.field_str("label", &site.name)?;
    json.field_str("name", &site.name)?;
    json.field_i64("bytes", held(site).max(0))?;
    json.field_null("blocks")?;
    json.key("stack")?;
    json.begin_array()?;
    for frame in &site.stack {
        json.begin_object()?;
        json.field_addr("address", frame.address)?;
        json_frame(json, Some(frame))?;
        json.field_bool("inlined", false)?;
        json.end_object()?;
    }
    json.end_array()
}

fn json_frame<W: Write>(json: &mut Json<W>, frame: Option<&SliceFrame>) -> std::io::Result<()> {
    json.field_opt_str("function", frame.and_then(|frame| frame.function.as_deref()))?;
    json.field_null("file")?;
    json.field_null("line")?;
    json.field_opt_str("module", frame.and_then(|frame| frame.module.as_deref()))
}
