//! What a recording left out on purpose, and how sure estimates are.

use std::io::{self, Write};

use highwater_query::{Group, Modes, Stats};
use highwater_replay::sampling::{count_error95, error95};

use crate::human::{bytes, counted, time};
use crate::json::Json;

/// `, +-1.2 KiB` where a number is an estimate, or not sure for another reason;
/// nothing where it is exact. `unsure` is that other reason's part, bytes.
pub fn give_or_take(variance: u64, unsure: u64) -> String {
    match error95(variance).saturating_add(unsure) {
        0 => String::new(),
        off => format!(", +-{}", bytes(off)),
    }
}

/// What the numbers of a sample are.
pub const ESTIMATES: &str = "live, peak and sites are estimates; +- holds 95 of 100 times";

/// The variance of the bytes of all these groups.
pub fn variance<'a>(groups: impl IntoIterator<Item = &'a Group>) -> u64 {
    groups.into_iter().map(|group| group.variance).fold(0, u64::saturating_add)
}

/// `error95`: how sure the bytes of the open object are; no field where they are
/// exact.
pub fn json_error<W: Write>(json: &mut Json<W>, variance: u64) -> io::Result<()> {
    if variance > 0 { json.field_u64("error95", error95(variance)) } else { Ok(()) }
}

/// One sentence for each thing that was left out on purpose; short enough for
/// 80 columns behind `highwater: note: `.
pub fn sentences(stats: &Stats) -> Vec<String> {
    let modes = &stats.modes;
    let mut lines = Vec::new();
    if modes.sample > 0 {
        let kept = counted(stats.totals.sampled.blocks, "block stands", "blocks stand");
        lines.push(format!("--sample {}: {kept} for all", bytes(modes.sample)));
        lines.push(ESTIMATES.to_string());
        if modes.counted.is_some() {
            let frees = if modes.min_size > 0 { "" } else { ", frees" };
            lines.push(format!("exact are allocations{frees} and bytes allocated"));
        }
        lines.push("a sample does not tell bad frees and temporary blocks".to_string());
    }
    if modes.min_size > 0 {
        let what = match modes.counted {
            Some(c) => format!("{}, {} in all,", counted(c.small, "block", "blocks"), bytes(c.small_bytes)),
            None => "smaller blocks".to_string(),
        };
        lines.push(format!("--min-size {}: {what} left out", bytes(modes.min_size)));
    }
    if modes.cull_ns > 0 {
        lines.push(format!("--cull {}: blocks freed sooner are in totals only", time(modes.cull_ns)));
    }
    if modes.live_only {
        lines.push("--live-only: blocks that were freed are in totals only".to_string());
    }
    if modes.live_only || modes.cull_ns > 0 {
        lines.push("a bad free of a block left out counts as a foreign one".to_string());
    }
    lines
}

/// `modes`: what was left out, as a field of the open object; no field where
/// nothing was. `totals` adds how sure they are.
pub fn json<W: Write>(json: &mut Json<W>, modes: &Modes, totals: Option<&Stats>) -> io::Result<()> {
    if modes.is_whole() {
        return Ok(());
    }
    json.key("modes")?;
    json.begin_object()?;
    if modes.sample > 0 {
        json.field_u64("sample", modes.sample)?;
        if let Some(stats) = totals {
            let sampled = &stats.totals.sampled;
            json.field_u64("sampled_blocks", sampled.blocks)?;
            json.field_u64("sampled_live_blocks", sampled.live)?;
            json.key("errors95")?;
            json.begin_object()?;
            json.field_u64("live_bytes", error95(sampled.live_variance))?;
            json.field_u64("live_blocks", count_error95(sampled.live_blocks_variance))?;
            json.field_u64("peak_bytes", error95(sampled.peak_variance))?;
            json.field_u64("peak_blocks", count_error95(sampled.peak_blocks_variance))?;
            if modes.counted.is_none() {
                json.field_u64("bytes_allocated", error95(sampled.bytes_variance))?;
                json.field_u64("allocations", count_error95(sampled.blocks_variance))?;
            }
            json.end_object()?;
            json.key("exact")?;
            json.begin_array()?;
            if modes.counted.is_some() {
                json.str("allocations")?;
                json.str("bytes_allocated")?;
                if modes.min_size == 0 {
                    json.str("frees")?;
                }
            }
            json.end_array()?;
        }
        json.key("unknown")?;
        json.begin_array()?;
        json.str("errors")?;
        json.str("temporary")?;
        json.end_array()?;
    }
    if modes.min_size > 0 {
        json.field_u64("min_size", modes.min_size)?;
        if let Some(counted) = &modes.counted {
            json.field_u64("left_out_blocks", counted.small)?;
            json.field_u64("left_out_bytes", counted.small_bytes)?;
        }
    }
    if modes.cull_ns > 0 {
        json.field_time("cull", modes.cull_ns)?;
    }
    if modes.live_only {
        json.field_bool("live_only", true)?;
    }
    json.end_object()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Look;
    use highwater_query::session::made::Made;
    use highwater_query::{By, Session};
    use highwater_trace::model::{End, EndedHow};

    fn session(options: &[&str]) -> Session {
        let mut made = Made::default().thread(0, 7, "main").node(1, 0, "main", "a.c", 1);
        made.facts.meta.options = options.iter().map(ToString::to_string).collect();
        let counters = [("made", 90), ("made_bytes", 9000), ("freed", 50), ("small", 5), ("small_bytes", 55)];
        let counters = counters.map(|(name, n)| (name.to_string(), n)).to_vec();
        made.facts.end = Some(End { how: EndedHow::Exit, counters, ..End::default() });
        made.alloc(0, 0x1000, 500, 1).alloc(0, 0x2000, 2000, 1).free(0, 0x1000).session()
    }

    #[test]
    fn sentences_fit_behind_their_prefix() {
        let mut session = session(&["sample=524288", "min_size=1024", "cull=10ms", "live_only"]);
        let found = session.outcome().unwrap();
        let mut stats = Stats::collect(&session, &found);
        stats.totals.sampled.blocks = 123_456_789;
        let lines = sentences(&stats);
        assert!(lines.len() >= 6 && lines.iter().all(|line| line.len() <= 63), "{lines:#?}");
    }

    fn views(options: &[&str]) -> (String, serde_json::Value, String, serde_json::Value) {
        let mut session = session(options);
        let found = session.outcome().unwrap();
        let stats = Stats::collect(&session, &found);
        let (mut text, mut doc, mut leaks, mut dump) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let look = Look::default();
        crate::stats::text(&mut text, &look, &session, &stats, found.sizes(), found.lifetimes()).unwrap();
        crate::stats::json(&mut doc, &stats, None).unwrap();
        let groups = crate::sites::live(&mut session, &found);
        crate::sites::leaks_text(&mut leaks, &look, &session, &stats, &groups, By::Site, 9).unwrap();
        let live = session.live_at(highwater_replay::Until::End).unwrap();
        crate::dump::json(&mut dump, &mut session, &live).unwrap();
        (
            String::from_utf8(text).unwrap() + &sentences(&stats).join("\n"),
            serde_json::from_slice(&doc).unwrap(),
            String::from_utf8(leaks).unwrap(),
            serde_json::from_slice(&dump).unwrap(),
        )
    }

    #[test]
    fn a_sample_is_shown_as_estimates_with_errors() {
        let (text, stats, leaks, dump) = views(&["sample=1000"]);
        // 2000 / (1 - e^-2) = 2313; its error is 1.96 * sqrt(w (w - 1)) * 2000.
        assert_eq!(stats["live_bytes"], 2313);
        assert_eq!(stats["modes"]["errors95"]["live_bytes"], 1668);
        assert_eq!(
            (&stats["allocations"], &stats["bytes_allocated"], &stats["frees"]),
            (&85.into(), &8945.into(), &50.into())
        );
        assert_eq!(stats["modes"]["unknown"][0], "errors");
        assert!(text.contains("+-1.6 KiB"), "{text}");
        assert!(text.contains("2 blocks stand for all"), "{text}");
        assert!(leaks.contains("in 1 block, +-1.6 KiB") && leaks.contains("2.3 KiB  1.6 KiB"), "{leaks}");
        assert_eq!(dump["modes"]["sample"], 1000);
        assert_eq!(
            (&dump["blocks"][0]["size"], &dump["blocks"][0]["stands_for_bytes"]),
            (&2000.into(), &2313.into())
        );
    }

    /// Bytes and 95 % errors of a list of things.
    fn sums(list: &serde_json::Value) -> (u64, Vec<u64>) {
        let list = list.as_array().expect("a list");
        let of = |key: &str| list.iter().filter_map(|one| one[key].as_u64()).collect::<Vec<_>>();
        (of("bytes").iter().sum(), of("error95"))
    }

    fn document(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> serde_json::Value {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn every_view_has_the_estimates_of_the_totals() {
        use highwater_query::leaks::evidence::{Evidence, Slicing};
        use highwater_query::leaks::gates::{self, Finding, Limits, Wanted};
        use highwater_query::leaks::suppressions::Suppressions;
        use highwater_query::leaks::window::Window;
        use highwater_query::leaks::{actions, rank};
        use highwater_query::tree::{Shape, Tree};
        use highwater_query::{Ask, Filter, Item, Metric, Survey};
        use highwater_replay::Until;

        let mut session = session(&["sample=1000"]);
        let found = session.outcome().unwrap();
        let stats = Stats::collect(&session, &found);
        let rules = Suppressions::default();
        let live = (2313, vec![1668]);

        let evidence = Evidence::collect(&mut session, Slicing::Events).unwrap();
        for method in [rank::Method::All, rank::Method::Exit] {
            let options = rank::Options { method, ..rank::Options::default() };
            let found = rank::rank(&mut session, &evidence, &rank::Findings::default(), &rules, &options);
            let more = crate::sites::LeaksJson { blocks: None, ranking: Some(&found) };
            let leaks =
                document(|out| crate::sites::leaks_json(out, &mut session, &stats, &[], By::Site, more));
            // One block that was seen is no evidence: by all methods together it is folded.
            let place = if method == rank::Method::All { "folded" } else { "suspects" };
            assert_eq!(sums(&leaks[place]), live, "{leaks:#}");
        }
        let made: u64 = evidence.stacks().map(|stack| stack.allocations).sum();
        assert_eq!(made, found.totals().allocations);
        let (born, freed) =
            evidence.stacks().next().unwrap().points.iter().fold((0, 0), |(born, freed), point| {
                (born + u64::from(point.born), freed + u64::from(point.freed))
            });
        assert_eq!((born, freed), (found.totals().allocations, found.totals().frees));

        let window = Window { name: String::new(), from: Until::Start, to: Until::End, until: Until::End };
        for by in [By::Site, By::Thread] {
            let windows = vec![window.clone()];
            let found = actions::find(&mut session, windows, by, &rules).unwrap();
            let leaks = document(|out| crate::windows::json(out, &mut session, &stats, &found, by, false));
            assert_eq!(sums(&leaks["suspects"]), live, "{leaks:#}");
            assert_eq!(leaks["modes"]["sample"], 1000);
        }

        for by in [By::Function, By::Thread] {
            let ask = Ask { by, metric: Some(Metric::Live), ..Ask::default() };
            let survey = Survey::of(&mut session, &ask).unwrap();
            let shape = Shape { by, metric: Metric::Live, ..Shape::default() };
            let tree = Tree::build(&mut session, survey.items.iter().copied(), &shape);
            let show = crate::tree::Show::ALL;
            let tree = document(|out| crate::tree::json(out, &session, &tree, &shape.direction, &show));
            assert_eq!((&tree["bytes"], &tree["error95"]), (&2313.into(), &1668.into()));
            assert_eq!(sums(&tree["roots"]), live);
        }

        let mut filter = Filter::default();
        filter.add("size=1..").unwrap();
        let survey = Survey::of(&mut session, &Ask { filter, ..Ask::default() }).unwrap();
        assert_eq!(survey.stats.totals.sampled, found.totals().sampled, "all blocks pass this filter");

        let amount = |item: &Item| highwater_query::diff::Amount::from(item);
        let replay = session.replay().unwrap();
        let items: Vec<Item> = replay.live().map(|block| Item::of_block(&block, &replay)).collect();
        let groups = highwater_query::group::group(&mut session, items.iter().copied(), By::Site);
        let after = highwater_query::diff::Amount::sum(items.iter().map(amount));
        let diff = highwater_query::diff::blocks(Default::default(), after, Vec::new(), groups, 0);
        let of = crate::diff::Of::default();
        let shown = crate::diff::Shown {
            before: &of,
            after: &of,
            by: By::Site,
            metric: "live",
            rank: Default::default(),
            blocks: true,
        };
        let diff = document(|out| crate::diff::json(out, &shown, &diff, 9));
        assert_eq!(diff["totals"]["after"]["error95"], 1668);
        assert_eq!(
            (&diff["new"][0]["bytes"], &diff["new"][0]["after"]["error95"]),
            (&2313.into(), &1668.into())
        );

        let limits =
            Limits { max_peak: Some(0), max_leak: Some(0), max_allocs: Some(0), max_temporary: None };
        let wanted = Wanted { limits, findings: vec![Finding::LeakExit], ..Wanted::default() };
        let gates = gates::check(&mut session, &found, &wanted, &rules).unwrap();
        let gates = document(|out| crate::check::json(out, &gates));
        let peak = (stats.totals.peak_bytes, error95(stats.totals.sampled.peak_variance));
        // Allocations were counted in the program: they are exact.
        let want = [(peak.0, Some(peak.1)), (2313, Some(1668)), (85, None), (2313, Some(1668))];
        for (at, (value, error)) in want.into_iter().enumerate() {
            let gate = &gates["gates"][at];
            assert_eq!((gate["value"].as_u64(), gate["error95"].as_u64()), (Some(value), error), "{gate:#}");
        }
    }

    #[test]
    fn a_whole_recording_has_no_word_of_modes() {
        let (text, stats, leaks, dump) = views(&["depth=3"]);
        assert!(stats.get("modes").is_none() && dump.get("modes").is_none());
        assert!(!text.contains("+-") && !leaks.contains("+-"), "{text}{leaks}");
        assert_eq!(stats["allocations"], 2);
    }

    #[test]
    fn what_was_left_out_is_named() {
        let (text, stats, ..) = views(&["min_size=64", "cull=10ms", "live_only"]);
        assert!(text.contains("--min-size 64 B: 5 blocks, 55 B in all, left out"), "{text}");
        assert!(text.contains("--cull 10.0 ms") && text.contains("--live-only"), "{text}");
        assert_eq!(stats["modes"]["left_out_bytes"], 55);
        assert_eq!(stats["allocations"], 2);
    }
}
