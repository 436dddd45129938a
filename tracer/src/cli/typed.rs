//! What is typed as a value, and the files that are named: shared by commands.

use super::command::User;
use anyhow::Context;
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::{OpenOptionsExt, fchown},
    path::Path,
    time::Duration,
};

/// A duration as people type it; a plain number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let plain: Result<f64, _> = text.parse();
    let duration = match plain {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => humantime::parse_duration(text).map_err(|error| error.to_string())?,
    };
    if duration.is_zero() {
        return Err("a duration must be more than 0, such as 60s or 1500ms".to_owned());
    }
    Ok(duration)
}

/// A size in powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let shift = match unit {
        "" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => {
            return Err(format!(
                "unknown unit {unit}; use K, M or G (powers of 1024)"
            ));
        }
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("{text} is not a size, such as 512M"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "too large".to_owned())
}

/// A file of ours for results: never through a link, for its owner alone.
pub fn create(path: &Path, owner: Option<User>) -> anyhow::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if let Some(owner) = owner {
        fchown(&file, Some(owner.uid), Some(owner.gid))
            .with_context(|| format!("cannot give {} to its user", path.display()))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert!(parse_size("1T").is_err());
        assert!(parse_size("M").is_err());
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2min"), Ok(Duration::from_mins(2)));
        assert!(parse_duration("0").is_err());
        assert!(parse_duration("-1").is_err());
    }
}
