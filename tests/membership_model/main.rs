//! A model of membership.

mod bugs;
mod checks;
mod decisions;
mod locks;
mod owners;
mod parts;
mod rng;
mod schedule;
mod slots;
mod state;
mod state_transfer;
mod steps;
mod world;

use schedule::{run, trace};

#[test]
fn seeds() {
    let var = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let from = var("FROM").unwrap_or(0);
    let count = var("COUNT").unwrap_or(300);
    let mut failed = 0;
    let mut sum = world::Counts::default();
    for seed in from..from + count {
        match run(seed, None) {
            Ok(counts) => sum.add(&counts),
            Err(broken) => {
                failed += 1;
                println!("seed {seed}: {:?} {}", broken.kind, broken.text.chars().take(300).collect::<String>());
            }
        }
    }
    println!("{sum:?}");
    if let Some(seed) = var("TRACE") {
        std::fs::write("/tmp/w/memmodel/trace.txt", trace(seed, None)).unwrap();
    }
    assert_eq!(failed, 0, "failed");
}

#[test]
fn hunt() {
    let var = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let from = var("FROM").unwrap_or(0);
    let count = var("COUNT").unwrap_or(300);
    let only = std::env::var("BUG").ok();
    for bug in bugs::ALL {
        if only.as_ref().is_some_and(|only| *only != format!("{bug:?}")) {
            continue;
        }
        let mut kinds = std::collections::BTreeMap::<_, Vec<u64>>::new();
        for seed in from..from + count {
            if let Err(broken) = run(seed, Some(bug)) {
                kinds.entry(broken.kind).or_default().push(seed);
            }
        }
        let shown: Vec<_> = kinds.iter().map(|(k, v)| (k, v.len(), v[0])).collect();
        println!("{bug:?}: {shown:?}");
    }
}
