//! Files of edleak's, and what is wrong with some of them.

use proptest::prelude::*;

use super::*;

const OLD: &str = r#"[
 [ {"eip":"0x4005d0:parse","memory":100}, {"eip":"0x400600","memory":-8} ],
 [ {"eip":"0x4005d0:parse","memory":200}, {"eip":"0x400600","memory":0}, {"eip":"0x9:late","memory":7} ]
]"#;

const NEW: &str = r#"{ "slice": [ [ {"mem":384,"alc":0} ], [ {"mem":400,"alc":0}, {"mem":0,"alc":1} ] ],
 "allocer": [ {"id":0,"stack":["0x4005d0:parse","0x400700:main"],"soname":["0x400000:/usr/bin/app","unknown"]},
              {"id":1,"stack":["0x7f01:operator new(unsigned long)"]} ],
 "annotations": [ {"id":1,"class":"leak"} ] }"#;

fn sizes(slices: &Slices) -> Vec<(String, Vec<i64>)> {
    slices.sites.iter().map(|site| (site.name.clone(), site.sizes())).collect()
}

#[test]
fn the_layout_of_2011() {
    let slices = read(OLD.as_bytes()).unwrap();
    assert_eq!(
        sizes(&slices),
        [("parse".into(), vec![100, 200]), ("0x400600".into(), vec![-8, 0]), ("late".into(), vec![7])]
    );
    assert_eq!((slices.times.as_slice(), slices.timed), ([1.0, 2.0].as_slice(), false));
    assert_eq!(slices.sites[2].points, [Point { slice: 1, size: 7, blocks: None }]);
    assert_eq!(slices.sites[0].stack[0].address, 0x4005d0);
    assert!(!slices.cut && !slices.mended);
}

#[test]
fn the_layout_of_2012_and_of_the_control_channel() {
    let slices = read(NEW.as_bytes()).unwrap();
    assert_eq!(
        sizes(&slices),
        [("parse".into(), vec![384, 400]), ("operator new(unsigned long)".into(), vec![0])]
    );
    let frame = |address, function: &str, module: Option<&str>, base| SliceFrame {
        address,
        function: Some(function.into()),
        module: module.map(str::to_string),
        base,
    };
    assert_eq!(
        slices.sites[0].stack,
        [frame(0x4005d0, "parse", Some("/usr/bin/app"), 0x400000), frame(0x400700, "main", None, 0)]
    );
    assert_eq!((slices.sites[0].class.clone(), slices.sites[1].class.as_deref()), (None, Some("leak")));
    let channel = format!(r#"{{ "status": 0, "data": {NEW} }}"#);
    assert_eq!(read(channel.as_bytes()).unwrap(), slices);
}

#[test]
fn times_come_from_the_file_or_from_its_period() {
    let with = |keys: &str| read(NEW.replacen('{', &format!("{{ {keys},"), 1).as_bytes()).unwrap();
    let timed = with(r#""times":[0.5,7.25]"#);
    assert_eq!((timed.times.as_slice(), timed.timed), ([0.5, 7.25].as_slice(), true));
    assert_eq!(timed.sites[1].series(&timed).collect::<Vec<_>>(), [(7.25, 0)]);
    let even = with(r#""period":30"#);
    assert_eq!((even.times.as_slice(), even.timed), ([30.0, 60.0].as_slice(), true));
    // Too few, or not in order: not believed.
    for keys in [r#""times":[1]"#, r#""times":[2,1]"#, r#""period":0"#] {
        let slices = with(keys);
        assert_eq!((slices.times.as_slice(), slices.timed), ([1.0, 2.0].as_slice(), false), "{keys}");
    }
}

#[test]
fn edleak_does_not_escape_the_names_it_writes() {
    let name = "operator\"\" _s(char const*, unsigned long) C:\\new\\x\tend";
    let text = NEW.replace("operator new(unsigned long)", name);
    assert!(serde_json::from_str::<serde_json::Value>(&text).is_err());
    let slices = read(text.as_bytes()).unwrap();
    assert!(slices.mended);
    // `\n` in a path cannot be told from an escape.
    assert_eq!(slices.sites[1].name, "operator\"\" _s(char const*, unsigned long) C:\new\\x\tend");
    assert_eq!(slices.sites[0].sizes(), [384, 400]);
}

#[test]
fn edleaks_client_stores_an_annotation_twice_and_calls_a_class_true() {
    let twice = r#"[ {"id":0,"class":"linear"}, {"id":0,"class":true}, {"alc":1,"class":"exp"}, {"id":7} ]"#;
    let text = NEW.replace(r#"[ {"id":1,"class":"leak"} ]"#, twice);
    let slices = read(text.as_bytes()).unwrap();
    let classes: Vec<_> = slices.sites.iter().map(|site| site.class.as_deref()).collect();
    assert_eq!(classes, [Some("leak"), Some("exp")]);
}

#[test]
fn a_name_of_2011_that_comes_twice_in_a_slice_holds_the_sum() {
    let text = r#"[[{"eip":"0x1:f","memory":3},{"eip":"0x1:f","memory":4}]]"#;
    assert_eq!(sizes(&read(text.as_bytes()).unwrap()), [("f".into(), vec![7])]);
}

#[test]
fn a_file_cut_anywhere_gives_its_whole_slices() {
    for text in [OLD, NEW] {
        let whole = read(text.as_bytes()).unwrap();
        for end in 0..text.len() {
            match read(&text.as_bytes()[..end]) {
                Ok(slices) => {
                    assert!(slices.cut, "{}", &text[..end]);
                    assert!(slices.times.len() <= whole.times.len());
                    for site in &slices.sites {
                        let full = whole.sites.iter().find(|s| s.id == site.id).unwrap();
                        assert!(full.points.starts_with(&site.points));
                    }
                }
                Err(error) => assert!(matches!(error, EdleakError::Syntax(_))),
            }
        }
        let cut = &text[..text.rfind("\"allocer\"").unwrap_or(text.len() - 1)];
        assert_eq!(read(cut.as_bytes()).unwrap().times.len(), 2);
    }
    let unnamed = read(&NEW.as_bytes()[..NEW.find("\"allocer\"").unwrap()]).unwrap();
    assert_eq!(unnamed.sites[0].name, "context 0");
}

#[test]
fn what_is_not_of_edleak_is_refused() {
    for text in ["", "{}", "7", "{\"events\":[]}", "[1,2]", "[{\"mem\":1}]", "nonsense"] {
        assert!(read(text.as_bytes()).is_err(), "{text}");
    }
    assert!(is_slices(OLD.as_bytes()) && is_slices(NEW.as_bytes()) && is_slices(b" [ ]"));
    assert!(!is_slices(b"\x89HWT") && !is_slices(b"{\"schema\":1}") && !is_slices(b"<__0"));
}

proptest! {
    #[test]
    fn slices_come_back_as_they_were_written(
        table in proptest::collection::vec(proptest::collection::vec(proptest::option::of(-9i64..999), 3), 0..8)
    ) {
        let slice = |row: &Vec<Option<i64>>| {
            let all = row.iter().enumerate().filter_map(|(alc, mem)| Some(format!(r#"{{"mem":{},"alc":{alc}}}"#, (*mem)?)));
            format!("[{}]", all.collect::<Vec<_>>().join(","))
        };
        let text = format!(r#"{{"slice":[{}]}}"#, table.iter().map(slice).collect::<Vec<_>>().join(","));
        let slices = read(text.as_bytes()).unwrap();
        prop_assert_eq!(slices.times.len(), table.len());
        for alc in 0..3u64 {
            let expected: Vec<(usize, i64)> = table.iter().enumerate()
                .filter_map(|(at, row)| Some((at, row[alc as usize]?))).collect();
            let found: Vec<(usize, i64)> = slices.sites.iter().filter(|s| s.id == alc)
                .flat_map(|s| s.points.iter().map(|p| (p.slice as usize, p.size))).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn no_bytes_make_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(bytes.as_slice());
        let _ = is_slices(&bytes);
    }

    #[test]
    fn no_pieces_make_it_fail(pieces in proptest::collection::vec(0usize..14, 0..40)) {
        let all = ["[", "]", "{", "}", ",", ":", "\"", "\"slice\"", "\"alc\"", "\"mem\"", "1", "-9e99", "\\", "\"eip\""];
        let text: String = pieces.iter().map(|&at| all[at]).collect();
        let _ = read(text.as_bytes());
    }
}
