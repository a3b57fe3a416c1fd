//! The cluster of a data directory: the members, by id and name, at its first start.
//!
//! The content of a journal depends on the members, because a lock has one part for each. So they cannot be
//! changed by editing the configuration. A directory without this file gets it at its next start. Members
//! that join later are in decisions of the journal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use geolock_api::names::DcId;

const MEMBERS: &str = "members";
const MEMBERS_TEMP: &str = "members.tmp";
const FIRST_LINE: &str = "geolock members, format 1";
/// A file larger than this is not such a file; it is not read.
const MAX_BYTES: u64 = 16 << 10;

/// The members of a cluster by id, with their names.
pub type MemberNames = Vec<(DcId, String)>;

/// The reason why a server does not start with these members. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum MembersError {
    #[error(
        "data directory {} is of a cluster with the founders {}; the configuration names {}. Founders cannot be changed, also not by \
         editing the configuration of all: name the same ones again. A further datacenter joins with `geolock server \
         --join`; for a new cluster, use another name and new data directories",
        dir.display(), shown(found), shown(configured)
    )]
    Changed { dir: PathBuf, found: MemberNames, configured: MemberNames },
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{} does not name the members of a cluster: it is damaged. Restore it from a backup of the directory, or copy it from \
         another datacenter of the cluster",
        path.display()
    )]
    Damaged { path: PathBuf },
}

fn shown(members: &[(DcId, String)]) -> String {
    members.iter().map(|(dc, name)| format!("{name} ({})", dc.get())).collect::<Vec<_>>().join(", ")
}

/// Checks that the directory belongs to a cluster with these members. A directory without the file, or one
/// that cannot be read, passes.
pub fn check_members(dir: &Path, configured: &[(DcId, String)]) -> Result<(), MembersError> {
    match known(dir) {
        Err(MembersError::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        known => compare(dir, known?, configured).map(drop),
    }
}

/// The same check, made by the server that owns the directory; writes the file if there is none.
pub(crate) fn keep_members(dir: &Path, configured: &[(DcId, String)]) -> Result<(), MembersError> {
    if compare(dir, known(dir)?, configured)? {
        return Ok(());
    }
    let (temp, path) = (dir.join(MEMBERS_TEMP), dir.join(MEMBERS));
    let failed = |doing, path: &Path| {
        let path = path.to_owned();
        move |source| MembersError::Io { doing, path, source }
    };
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temp)
        .map_err(failed("create", &temp))?;
    file.write_all(render(configured).as_bytes()).map_err(failed("write", &temp))?;
    file.sync_all().map_err(failed("sync", &temp))?;
    fs::rename(&temp, &path).map_err(failed("rename", &temp))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed("sync the directory", dir))
}

/// Returns true if the file exists and has these members.
fn compare(
    dir: &Path,
    known: Option<MemberNames>,
    configured: &[(DcId, String)],
) -> Result<bool, MembersError> {
    match known {
        Some(found) if found != configured => {
            Err(MembersError::Changed { dir: dir.to_owned(), found, configured: configured.to_vec() })
        }
        known => Ok(known.is_some()),
    }
}

fn known(dir: &Path) -> Result<Option<MemberNames>, MembersError> {
    let path = dir.join(MEMBERS);
    let failed = |source| MembersError::Io { doing: "read", path: path.clone(), source };
    match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
        Ok(file) if file.len() > MAX_BYTES => return Err(MembersError::Damaged { path }),
        Ok(_) => {}
    }
    let bytes = fs::read(&path).map_err(failed)?;
    let members = std::str::from_utf8(&bytes).ok().and_then(parse);
    members.map(Some).ok_or(MembersError::Damaged { path })
}

fn render(members: &[(DcId, String)]) -> String {
    let lines = members.iter().map(|(dc, name)| format!("{} {name}\n", dc.get()));
    format!("{FIRST_LINE}\n{}", lines.collect::<String>())
}

/// Accepts exactly the output of [`render`].
fn parse(text: &str) -> Option<MemberNames> {
    let member = |line: &str| {
        let (dc, name) = line.split_once(' ')?;
        Some((DcId::new(dc.parse().ok()?)?, name.to_owned()))
    };
    let members: MemberNames = text.lines().skip(1).map(member).collect::<Option<_>>()?;
    (render(&members) == text).then_some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(names: &[&str]) -> MemberNames {
        let id = |place: usize| DcId::new(place as u8).expect("a small id");
        names.iter().enumerate().map(|(place, name)| (id(place), (*name).to_owned())).collect()
    }

    #[test]
    fn members_are_not_changed_by_editing_the_configuration() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let (dir, three) = (temp.path(), members(&["fra", "iad", "nrt"]));
        check_members(dir, &three).expect("a directory that does not say is anybody's");
        check_members(&dir.join("none"), &three).expect("so is none");
        keep_members(dir, &three).expect("it says so from now on");
        keep_members(dir, &three).expect("these are its members");
        for others in [&["fra", "iad"][..], &["fra", "iad", "nrt", "syd"], &["fra", "nrt", "iad"]] {
            let others = members(others);
            let refused = keep_members(dir, &others).expect_err("these are not its members").to_string();
            assert_eq!(check_members(dir, &others).expect_err("so does a check").to_string(), refused);
            assert!(refused.contains("with the founders fra (0), iad (1), nrt (2); the configuration names"));
            assert!(refused.contains(&shown(&others)) && refused.contains("cannot be changed"), "{refused}");
        }
        keep_members(dir, &three).expect("a refusal changes nothing");
    }

    #[test]
    fn a_damaged_file_is_no_other_cluster() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        for damaged in ["", "geolock members, format 1\n0", "geolock members, format 2\n0 fra\n", "\u{fffd}"]
        {
            fs::write(temp.path().join(MEMBERS), damaged).expect("a file can be written");
            let refused = keep_members(temp.path(), &members(&["fra"]));
            assert!(matches!(refused, Err(MembersError::Damaged { .. })), "{damaged:?}: {refused:?}");
        }
    }
}
