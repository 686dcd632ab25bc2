//! Output file names: a template with `%` fields.

use std::path::{Path, PathBuf};

/// What the fields stand for.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// `%p`
    pub pid: u32,
    /// `%n`, the program's file name
    pub name: String,
    /// `%i`, number of the image in a chain of execs
    pub image: u32,
}

/// The default template.
pub const DEFAULT: &str = "highwater.%n.%p.hwt";

/// Ranks that MPI launchers put into the environment.
const RANKS: [&str; 5] =
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];

/// Fills a template in: `%p` process id, `%n` program, `%i` image, `%r` MPI
/// rank (0 without MPI), `%h` host, `%t` Unix time, `%%` a percent sign.
pub fn expand(template: &str, fields: &Fields) -> PathBuf {
    let mut out = String::new();
    let mut chars = template.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('p') => out.push_str(&fields.pid.to_string()),
            Some('n') => out.push_str(&fields.name),
            Some('i') => out.push_str(&fields.image.to_string()),
            Some('r') => out.push_str(&rank()),
            Some('h') => out.push_str(&host()),
            Some('t') => {
                let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                out.push_str(&time.map_or(0, |t| t.as_secs()).to_string());
            }
            Some('%') => out.push('%'),
            Some(other) => {
                out.push('%');
                out.push(other);
            }
            None => out.push('%'),
        }
    }
    PathBuf::from(out)
}

/// The rank of this process as its launcher numbers it.
fn rank() -> String {
    RANKS.iter().find_map(|name| std::env::var(name).ok()).unwrap_or_else(|| "0".to_owned())
}

/// This machine's name.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map(|h| h.trim().to_owned()).unwrap_or_default()
}

/// `app.hwt` for image 2 becomes `app.i2.hwt`: where an earlier image's trace
/// goes when a later one takes its name.
pub fn of_image(path: &Path, image: u32) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = match path.extension() {
        Some(extension) => format!("{stem}.i{image}.{}", extension.to_string_lossy()),
        None => format!("{stem}.i{image}"),
    };
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_filled_in() {
        let fields = Fields { pid: 42, name: "app".into(), image: 3 };
        assert_eq!(expand("x.%n.%p.%i%%.hwt", &fields), PathBuf::from("x.app.42.3%.hwt"));
        assert_eq!(expand("%z%", &fields), PathBuf::from("%z%"));
    }

    #[test]
    fn an_earlier_image_keeps_its_trace_under_another_name() {
        assert_eq!(of_image(Path::new("/a/b.hwt"), 0), PathBuf::from("/a/b.i0.hwt"));
        assert_eq!(of_image(Path::new("trace"), 1), PathBuf::from("trace.i1"));
    }
}
