//! The memory of the process.

use std::fs;

/// Returns resident bytes, as Linux counts them; `None` on other systems. Costs one small read.
pub fn resident_bytes() -> Option<u64> {
    of_status(&fs::read_to_string("/proc/self/status").ok()?)
}

fn of_status(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resident_set_is_found() {
        assert_eq!(of_status("Name:\tx\nVmRSS:\t    1234 kB\nVmSwap: 0 kB\n"), Some(1234 << 10));
        assert_eq!(of_status("Name:\tx\n"), None);
        if cfg!(target_os = "linux") {
            assert!(resident_bytes().is_some_and(|bytes| bytes > 1 << 20));
        }
    }
}
