//! The file of rules: TOML with a `[[rule]]` for each.
//!
//! Everything that no rule allows is refused. A rule without meaning is an error. So is a file without rules:
//! it would refuse every client, or, treated as no file, admit every client.

use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use super::action::{Action, On};
use super::digest::{digest_in_order, digest_of_all};
use super::error::AccessError;
use super::principal::{Principal, PrincipalPattern};
use super::rights::Rights;
use geolock_api::keys::{Key, MAX_KEY};
use geolock_api::names::MAX_LOCK_NAME;

/// Most rules of a file.
const MAX_RULES: usize = 10_000;
/// The option that names the file.
pub(super) const KEY: &str = "api.acl";

/// The checked rules of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    principals: Vec<PrincipalPattern>,
    /// The allowed actions, with the prefixes of the names on which they are allowed.
    allow: Vec<(Action, Vec<Vec<u8>>)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    rule: Vec<Spanned<Entry>>,
}

/// `[[rule]]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    who: Vec<String>,
    allow: Vec<String>,
    #[serde(default)]
    locks: Vec<String>,
    #[serde(default)]
    keys: Vec<Keys>,
}

/// The keys of a rule: those of one bucket whose names begin with the prefix; without a bucket, or with `*`,
/// all keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    bucket: Option<String>,
    #[serde(default)]
    prefix: String,
}

impl Rules {
    /// Parses the text of a file. Errors name `path`.
    pub fn parse(path: &Path, text: &str) -> Result<Rules, AccessError> {
        let at = |line, what| AccessError::Line { key: KEY, path: path.into(), line, what };
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            at(line, error.message().to_owned())
        })?;
        let whole = |what: String| AccessError::File { key: KEY, path: path.into(), what };
        match file.rule.len() {
            0 => {
                let what = "it has no [[rule]], so no client could do anything; to allow everything, remove the option";
                return Err(whole(what.into()));
            }
            1..=MAX_RULES => {}
            many => return Err(whole(format!("{many} rules; at most {MAX_RULES}"))),
        }
        let rule = |(index, entry): (usize, Spanned<Entry>)| {
            let line = line_of(text, entry.span().start);
            rule(entry.into_inner()).map_err(|what| at(line, format!("rule {}: {what}", index + 1)))
        };
        Ok(Rules(file.rule.into_iter().enumerate().map(rule).collect::<Result<_, _>>()?))
    }

    /// Returns the union of the rights that the rules give this caller.
    pub fn rights(&self, principal: &Principal) -> Rights {
        let mut rights = Rights::default();
        let of_caller =
            self.0.iter().filter(|rule| rule.principals.iter().any(|pattern| pattern.matches(principal)));
        for (action, prefixes) in of_caller.flat_map(|rule| &rule.allow) {
            prefixes.iter().for_each(|prefix| rights.allow(*action, prefix));
        }
        rights.sorted()
    }

    /// Returns the digest of all rules.
    pub fn digest(&self) -> [u8; 32] {
        digest_of_all(self.0.iter().map(Rule::digest).map(Vec::from).collect())
    }

    /// Returns the number of rules.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Rule {
    fn digest(&self) -> [u8; 32] {
        let principals = self.principals.iter().map(|pattern| pattern.to_string().into_bytes());
        let allowed = self
            .allow
            .iter()
            .map(|(action, prefixes)| [action.name().as_bytes(), &digest_of_all(prefixes.clone())].concat());
        let halves = [digest_of_all(principals.collect()), digest_of_all(allowed.collect())];
        digest_in_order(&halves)
    }
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

fn rule(entry: Entry) -> Result<Rule, String> {
    if entry.who.is_empty() {
        return Err("`who` is empty".into());
    }
    let pattern =
        |text: &String| PrincipalPattern::parse(text).map_err(|what| format!("who {text:?}: {what}"));
    let principals = entry.who.iter().map(pattern).collect::<Result<_, _>>()?;
    if entry.allow.is_empty() {
        return Err("`allow` names no action".into());
    }
    let actions = entry.allow.iter().map(|name| action(name)).collect::<Result<Vec<_>, _>>()?;
    let locks = entry.locks.into_iter().map(lock_prefix).collect::<Result<Vec<_>, _>>()?;
    let keys = entry.keys.into_iter().map(key_prefix).collect::<Result<Vec<_>, _>>()?;
    needed("locks", &actions, On::Locks, !locks.is_empty(), "[\"\"] is all locks")?;
    needed("keys", &actions, On::Keys, !keys.is_empty(), "[{}] is all keys")?;
    let on = |action: Action| match action.on() {
        On::Locks => locks.clone(),
        On::Keys => keys.clone(),
        On::Server => vec![Vec::new()],
    };
    Ok(Rule { principals, allow: actions.into_iter().map(|action| (action, on(action))).collect() })
}

fn action(name: &str) -> Result<Action, String> {
    Action::named(name).ok_or_else(|| {
        let names = Action::ALL.map(Action::name).join(", ");
        format!("allow {name:?}: no such action; there are {names}")
    })
}

/// Checks that a rule names locks if and only if it allows an action on locks; likewise keys.
fn needed(what: &str, actions: &[Action], on: On, named: bool, all: &str) -> Result<(), String> {
    match (actions.iter().find(|action| action.on() == on), named) {
        (Some(action), false) => Err(format!("it allows {action} and has no `{what}`: add it; {all}")),
        (None, true) => Err(format!("it has `{what}` and allows nothing on them")),
        _ => Ok(()),
    }
}

fn lock_prefix(prefix: String) -> Result<Vec<u8>, String> {
    match prefix.len() {
        0..=MAX_LOCK_NAME => Ok(prefix.into_bytes()),
        bytes => {
            Err(format!("locks: a prefix of {bytes} bytes; names of locks have at most {MAX_LOCK_NAME}"))
        }
    }
}

fn key_prefix(Keys { bucket, prefix }: Keys) -> Result<Vec<u8>, String> {
    let Some(bucket) = bucket.filter(|bucket| bucket != "*") else {
        let all = prefix.is_empty();
        return if all { Ok(Vec::new()) } else { Err("keys: a `prefix` needs a `bucket`".into()) };
    };
    if bucket.ends_with('*') {
        return Err(format!(
            "keys: bucket {bucket:?}: a rule names one bucket, or all with \"*\"; write one entry for each bucket"
        ));
    }
    match Key::prefix_bytes(bucket.as_bytes(), prefix.as_bytes()) {
        Ok(bytes) => Ok(bytes.to_vec()),
        Err(_) if prefix.len() > MAX_KEY => {
            Err(format!("keys: a prefix of {} bytes; names of keys have at most {MAX_KEY}", prefix.len()))
        }
        Err(error) => Err(format!("keys: {error}")),
    }
}
