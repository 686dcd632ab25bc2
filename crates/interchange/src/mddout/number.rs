//! The next free number of `mddout.N`.

use std::path::Path;

/// One more than the greatest N of the files `mddout.N` in `folder`; 0 if there are none.
///
/// # Errors
/// If the folder cannot be read.
pub fn next(folder: &Path) -> std::io::Result<u32> {
    let mut next = 0;
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix("mddout.")).filter(|n| canonical(n));
        if let Some(n) = number.and_then(|n| n.parse::<u32>().ok()) {
            next = next.max(n.saturating_add(1));
        }
    }
    Ok(next)
}

/// `007` and `+7` are other people's files.
fn canonical(digits: &str) -> bool {
    digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_the_greatest() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(next(folder.path()).unwrap(), 0);
        for name in ["mddout.0", "mddout.9", "mddout.007", "mddout.12.bak", "mddout.", "other.99"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(next(folder.path()).unwrap(), 10);
    }
}
