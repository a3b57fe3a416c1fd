//! The size of the types in the core: one that can do everything is understood by nobody.

use std::collections::BTreeMap;

use crate::style::begins_function;
use crate::{report, sources};

/// The rooms whose types have a limit.
const ROOMS: [&str; 8] =
    ["base", "crdt", "causal_log", "lock_state", "leases", "store_state", "membership", "replica"];
/// Most methods of a type, in all files of its room together.
const MAX_METHODS: usize = 39;
/// Most fields of a type with more than a few methods; others are only data.
const MAX_FIELDS: usize = 14;
const FEW_METHODS: usize = 10;

/// Fields and methods.
type Size = (usize, usize);

#[test]
fn types_of_the_core_stay_small() {
    let sizes = sizes();
    let mut faults = Vec::new();
    for ((room, name), (fields, methods)) in &sizes {
        if *methods > MAX_METHODS || *fields > MAX_FIELDS && *methods > FEW_METHODS {
            faults.push(format!(
                "{room}::{name}: {fields} fields, at most {MAX_FIELDS}; {methods} methods, at most {MAX_METHODS}"
            ));
        }
    }
    assert!(sizes.len() > 300, "the types of the core are found");
    report(&faults);
}

/// Returns the sizes of all types by room and name. rustfmt begins and ends each at the first column.
fn sizes() -> BTreeMap<(String, String), Size> {
    let mut sizes = BTreeMap::<_, Size>::new();
    for source in sources().into_iter().filter(|it| ROOMS.contains(&it.room.as_str()) && !it.is_test) {
        let code = source.without_comments();
        let mut inside: Option<(bool, (String, String))> = None;
        let mut is_for_tests = false;
        for line in code.lines() {
            let member = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '));
            match (&inside, member) {
                (None, _) => {
                    inside = opened(line).map(|(is_struct, name)| (is_struct, (source.room.clone(), name)));
                }
                (Some(_), _) if line.starts_with('}') => inside = None,
                (Some((true, key)), Some(member)) if is_field(member) => {
                    sizes.entry(key.clone()).or_default().0 += 1;
                }
                (Some((false, key)), Some(member)) if begins_function(member) && !is_for_tests => {
                    sizes.entry(key.clone()).or_default().1 += 1;
                }
                _ => {}
            }
            is_for_tests = line.trim() == "#[cfg(test)]";
        }
    }
    sizes
}

/// Returns the name of the type if the line opens its fields (true) or some of its methods (false).
fn opened(line: &str) -> Option<(bool, String)> {
    if !line.ends_with('{') {
        return None;
    }
    let words = line.trim_end_matches('{').split_whitespace().collect::<Vec<_>>();
    let name =
        |word: &str| word.split('<').next().unwrap_or(word).rsplit("::").next().unwrap_or(word).to_owned();
    if let Some(at) = words.iter().position(|word| *word == "struct") {
        return Some((true, name(words.get(at + 1)?)));
    }
    let is_impl = words.first().is_some_and(|word| word.starts_with("impl"));
    let named = match words.iter().position(|word| *word == "for") {
        Some(at) => words.get(at + 1),
        None => words.iter().skip(1).find(|word| word.starts_with(|first: char| first.is_uppercase())),
    };
    is_impl.then(|| named.map(|word| (false, name(word)))).flatten()
}

fn is_field(member: &str) -> bool {
    let name = match member.strip_prefix("pub") {
        Some(rest) => rest.rsplit(')').next().filter(|_| rest.starts_with('(')).unwrap_or(rest).trim_start(),
        None => member,
    };
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
    end > 0 && name[end..].starts_with(": ")
}
