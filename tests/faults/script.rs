//! The scripts themselves: their content, and refusals.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use geolock::testkit::faults::{Clock, Kill, Nth, Path as Way, Script, ScriptError, Step, When};
use geolock_api::names::DcId;

pub fn load(text: &str) -> Result<Script, ScriptError> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("it is writable");
    Script::load(file.path())
}

#[test]
fn a_script_says_what_happens_and_everything_else_is_well() {
    let script = load(
        "kill = { when = \"after\", step = \"sync\", time = 3 }\nfail = { step = \"append\" }\n\
         [clock]\nahead_ms = -5\n[net.dc1]\ncut = true\n[net.dc2]\ndelay_ms = 7\nloss = 0.5\n",
    )
    .expect("it is a script");
    let time = |n| NonZeroU64::new(n).expect("above 0");
    assert_eq!(script.kill, Some(Kill { when: When::After, step: Step::Sync, time: time(3) }));
    assert_eq!(script.fail, Some(Nth { step: Step::Append, time: time(1) }));
    assert_eq!(script.clock, Clock { ahead_ms: -5, ..Clock::default() });
    let path = |id| script.path(DcId::new(id).expect("a small id"));
    assert_eq!((path(0), path(1).cut, path(2).cut), (Way::default(), true, false));
    assert_eq!((path(2).delay(), path(2).loss), (Duration::from_millis(7), 0.5));
    assert_eq!(load("").expect("nothing is a script"), Script::default());
}

#[test]
fn what_is_no_script_is_refused_with_its_place() {
    for (text, said) in [
        ("[net.oslo]\ncut = true\n", "\"oslo\" is no datacenter"),
        ("kill = { when = \"after\", step = \"snyc\" }", "unknown variant `snyc`"),
        ("[clock]\nahead = 1\n", "unknown field `ahead`"),
        ("fail = { step = \"sync\", time = 0 }", "expected a nonzero u64"),
        ("[net.dc1]\nloss = 1.5\n", "loss = 1.5 of dc1: 0 to 1"),
        ("[net.dc1]\nduplicate = -0.5\n", "duplicate = -0.5 of dc1: 0 to 1"),
        ("speak = 9\n", "speak = 9: 1 to 8"),
        ("[net.dc1]\nloss = nan\n", "loss = NaN of dc1: 0 to 1"),
    ] {
        let error = load(text).expect_err(text).to_string();
        assert!(error.contains(said), "{error}");
    }
    let error = Script::load(Path::new("/nowhere/script")).expect_err("it is not there").to_string();
    assert!(error.starts_with("cannot read the fault script /nowhere/script"), "{error}");
}
