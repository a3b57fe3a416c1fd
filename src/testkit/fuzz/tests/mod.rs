//! The bodies of the fuzz targets, without a fuzzer: with the committed corpus, and with pseudo-random
//! changes of it, the same in every run.

mod seeds;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Happened, TARGETS, sequence};

/// splitmix64, by Sebastiano Vigna, public domain: a seed gives the same bytes for ever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Makes one change: a byte, a bit, a cut, a repeated piece, or the end of another input.
    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        if bytes.is_empty() {
            return bytes.push(self.next() as u8);
        }
        let place = self.below(bytes.len());
        match self.below(6) {
            0 => bytes[place] = self.next() as u8,
            1 => bytes[place] ^= 1 << self.below(8),
            2 => bytes[place] = [0, 1, 0x7f, 0x80, 0xfa, 0xfb, 0xfc, 0xfd, 0xff][self.below(9)],
            3 => bytes.truncate(place),
            4 => {
                let piece = bytes[place..].iter().copied().take(16).collect::<Vec<u8>>();
                bytes.splice(place..place, piece);
            }
            _ => {
                let from = self.below(other.len() + 1);
                bytes.truncate(place);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
}

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// Returns the committed inputs of a target, in the order of their names.
fn corpus(target: &str) -> BTreeMap<String, Vec<u8>> {
    let files =
        fs::read_dir(folder(target)).unwrap_or_else(|error| panic!("the corpus of {target}: {error}"));
    let file = |path: PathBuf| (path.display().to_string(), fs::read(&path).expect("it can be read"));
    files.map(|entry| file(entry.expect("it is listed").path())).collect()
}

#[test]
fn every_body_is_a_target_of_the_fuzzer() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let read =
        |path: &str| fs::read_to_string(fuzz.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let manifest = read("Cargo.toml");
    for (target, _) in TARGETS {
        let path = format!("fuzz_targets/{target}.rs");
        assert!(read(&path).contains(&format!("geolock::testkit::fuzz::run(\"{target}\", data)")), "{path}");
        assert!(manifest.contains(&format!("path = \"{path}\"")), "{target} is in the manifest");
    }
    let files = fs::read_dir(fuzz.join("fuzz_targets")).expect("it is there").count();
    assert_eq!(files, TARGETS.len(), "each has a body");
}

#[test]
fn what_is_valid_is_taken() {
    for (target, body) in TARGETS {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{target} has a corpus");
        for (name, bytes) in corpus {
            assert!(body(&bytes), "{name} is valid: `write_the_corpus` writes it anew");
        }
    }
}

#[test]
fn what_is_damaged_is_refused_or_means_something_else() {
    const CHANGED: usize = 600;
    for (index, (target, body)) in (0..).zip(TARGETS).filter(|(_, (name, _))| *name != "sequence") {
        let corpus: Vec<Vec<u8>> = corpus(target).into_values().collect();
        let (mut random, mut refused) = (Random(index), 0);
        for round in 0..CHANGED {
            let mut bytes = corpus[round % corpus.len()].clone();
            let other = corpus[random.below(corpus.len())].clone();
            (0..=random.below(4)).for_each(|_| random.change(&mut bytes, &other));
            refused += usize::from(!body(&bytes));
            body(&random.bytes(round % 64));
        }
        assert!(refused > CHANGED / 20, "{target}: only {refused} of {CHANGED} are refused");
    }
}

/// Runs these seeds. Returns the sum of their counts.
fn runs(seeds: std::ops::Range<u64>) -> Happened {
    let mut all = Happened::default();
    for seed in seeds {
        let bytes = Random(seed).bytes(2_000);
        let outcome = std::panic::catch_unwind(|| sequence(&bytes));
        all.add(&outcome.unwrap_or_else(|_| panic!("the sequence of seed {seed}")));
    }
    all
}

#[test]
fn anything_may_happen_in_any_order() {
    let happened = runs(0..240);
    let Happened { delivered, forged, damaged, refused, applied, restarts, checkpoints, .. } = happened;
    assert!(delivered > 1_000 && forged > 1_000 && damaged > 100 && refused > 100, "{happened:?}");
    assert!(applied > 100 && restarts > 100 && checkpoints > 100, "{happened:?}");
    let Happened { grants, forced, commits, state_transfers_received, .. } = happened;
    assert!(grants > 20 && forced > 0 && commits > 3 && state_transfers_received > 0, "{happened:?}");
}

/// Runs as many seeds as `GEOLOCK_FUZZ_SEEDS` says, from `GEOLOCK_FUZZ_FROM` on.
#[test]
#[ignore = "for as long as you like"]
fn much_more_may_happen() {
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let from = number("GEOLOCK_FUZZ_FROM", 1_000);
    println!("{:?}", runs(from..from + number("GEOLOCK_FUZZ_SEEDS", 1_000)));
}

#[test]
#[ignore = "writes fuzz/corpus"]
fn write_the_corpus() {
    for (target, files) in seeds::all() {
        fs::create_dir_all(folder(target)).expect("the folder can be made");
        for (number, bytes) in files.iter().enumerate() {
            fs::write(folder(target).join(format!("{number:02}")), bytes).expect("it can be written");
        }
    }
}
