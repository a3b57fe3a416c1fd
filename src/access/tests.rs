//! Valid and invalid files, callers, and their rights.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::active_rules::{Access, AccessFiles, Authorizer};
use super::tokens::{PresentedToken, Tokens};
use super::{AccessError, Action, NewToken, Principal, Refused, Resource, Rights, Rules};
use geolock_api::keys::Key;
use geolock_api::names::LockName;

const RULES: &str = r#"
# Comments are fine.
[[rule]]
who = ["client:payments", "token:batch-*"]
allow = ["acquire-exclusive", "describe"]
locks = ["payments/", "audit"]

[[rule]]
who = ["client:*"]
allow = ["read", "acquire-shared"]
locks = ["payments/open"]
keys = [{ bucket = "accounts", prefix = "eu/" }, { bucket = "rates" }]

[[rule]]
who = ["anonymous"]
allow = ["describe"]
locks = [""]

[[rule]]
who = ["client:ops"]
allow = ["admin", "write", "force-release"]
locks = ["x"]
keys = [{}]
"#;

fn rules(text: &str) -> Result<Rules, AccessError> {
    Rules::parse(Path::new("/etc/acl.toml"), text)
}

fn rights(principal: &Principal) -> Rights {
    rules(RULES).expect("good rules").rights(principal)
}

fn client(name: &str) -> Principal {
    Principal::Client(name.into())
}

fn token(name: &str) -> Principal {
    Principal::Token(name.into())
}

fn key(bucket: &str, name: &str) -> Key {
    Key::new(bucket.as_bytes(), name.as_bytes()).expect("it is a key")
}

#[test]
fn a_rule_is_for_those_it_names() {
    let exclusive = |principal: &Principal| rights(principal).allows(Action::AcquireExclusive, b"payments/7");
    for may in [client("payments"), token("batch-"), token("batch-7")] {
        assert!(exclusive(&may), "{may}");
    }
    for may_not in
        [client("payments2"), client("batch-7"), token("payments"), token("batch"), Principal::Anonymous]
    {
        assert!(!exclusive(&may_not), "{may_not}");
    }
    assert!(rights(&client("whoever")).allows(Action::AcquireShared, b"payments/open"), "client:*");
    assert!(!rights(&token("whoever")).allows(Action::AcquireShared, b"payments/open"));
    let everybody = "[[rule]]\nwho = [\"*\"]\nallow = [\"admin\"]";
    for who in [client("a"), token("a"), Principal::Anonymous] {
        assert!(rules(everybody).expect("good").rights(&who).allows(Action::Admin, b""), "{who}");
    }
}

#[test]
fn what_no_rule_allows_is_denied() {
    let payments = rights(&client("payments"));
    for (action, name, allowed) in [
        (Action::AcquireExclusive, "payments/7", true),
        (Action::AcquireExclusive, "audit", true),
        (Action::AcquireExclusive, "audit2", true),
        (Action::AcquireExclusive, "payments", false),
        (Action::AcquireExclusive, "", false),
        (Action::AcquireShared, "payments/7", false),
        (Action::AcquireShared, "payments/open/1", true),
        (Action::Describe, "payments/", true),
        (Action::Describe, "p", false),
        (Action::ForceRelease, "payments/7", false),
        (Action::Admin, "", false),
    ] {
        assert_eq!(payments.allows(action, name.as_bytes()), allowed, "{action} {name:?}");
    }
    assert_eq!(rights(&token("nobody")), Rights::default());
    assert!(rights(&Principal::Anonymous).allows(Action::Describe, b""), "the empty prefix is all");
    assert!(rights(&client("ops")).allows(Action::Admin, b""));
}

#[test]
fn keys_are_within_buckets_and_prefixes() {
    let some = rights(&client("any"));
    for (bucket, name, allowed) in [
        ("accounts", "eu/1", true),
        ("accounts", "us/1", false),
        ("accounts", "eu", false),
        ("account", "seu/1", false),
        ("accountse", "u/1", false),
        ("rates", "x", true),
        ("ratesx", "x", false),
        ("rate", "sx", false),
    ] {
        assert_eq!(some.allows(Action::Read, key(bucket, name).as_bytes()), allowed, "{bucket} {name}");
        assert!(!some.allows(Action::Write, key(bucket, name).as_bytes()));
    }
    let watched = |bucket: &str, prefix: &str| {
        let prefix = Key::prefix_bytes(bucket.as_bytes(), prefix.as_bytes()).expect("a prefix");
        some.allows(Action::Read, &prefix)
    };
    assert!(watched("accounts", "eu/") && watched("accounts", "eu/d") && watched("rates", ""));
    assert!(!watched("accounts", "") && !watched("accounts", "e") && !watched("rate", "s"));
    assert!(rights(&client("ops")).allows(Action::Write, key("any", "thing").as_bytes()));
}

#[test]
fn the_example_says_what_it_means() {
    let example = rules(include_str!("../../examples/acl.toml")).expect("good rules");
    assert_eq!(example.count(), 5);
    let payments = example.rights(&client("payments"));
    assert!(payments.allows(Action::AcquireExclusive, b"payments/1"));
    assert!(payments.allows(Action::Write, key("accounts", "eu/1").as_bytes()));
    assert!(payments.allows(Action::Read, key("rates", "usd").as_bytes()));
    assert!(!payments.allows(Action::Write, key("rates", "usd").as_bytes()));
    assert!(example.rights(&token("ci-7")).allows(Action::AcquireExclusive, b"ci/x"));
    assert!(example.rights(&client("ops-ann")).allows(Action::ForceRelease, b"any"));
    assert_eq!(example.rights(&Principal::Anonymous), Rights::default());
}

#[test]
fn a_bad_rule_is_named_with_its_line_and_what_is_wrong() {
    let who_allow = |rest: &str| format!("# first\n[[rule]]\nwho = [\"client:a\"]\n{rest}");
    for (text, wanted) in [
        (String::new(), "no [[rule]]"),
        ("# only a comment".into(), "remove the option"),
        (
            who_allow("allow = [\"aquire\"]"),
            "line 2: rule 1: allow \"aquire\": no such action; there are acquire-shared, acquire-exclusive, describe, force-release, read, write, admin",
        ),
        (who_allow("allow = []"), "`allow` names no action"),
        (who_allow("allow = [\"read\"]"), "it allows read and has no `keys`: add it; [{}] is all keys"),
        (who_allow("allow = [\"describe\"]"), "it allows describe and has no `locks`"),
        (who_allow("allow = [\"admin\"]\nlocks = [\"a\"]"), "it has `locks` and allows nothing on them"),
        (who_allow("allow = [\"admin\"]\nkeys = [{}]"), "it has `keys` and allows nothing on them"),
        (who_allow("allow = [\"read\"]\nkeys = [{ prefix = \"a\" }]"), "a `prefix` needs a `bucket`"),
        (
            who_allow("allow = [\"read\"]\nkeys = [{ bucket = \"\" }]"),
            "a bucket has a name of 1 to 255 bytes",
        ),
        (who_allow(&format!("allow = [\"describe\"]\nlocks = [\"{}\"]", "x".repeat(1025))), "1025 bytes"),
        (who_allow("allow = [\"read\"]\nkeys = [{ buckt = \"\" }]"), "line 5: unknown field `buckt`"),
        (who_allow("alow = [\"read\"]"), "unknown field `alow`"),
        ("[[rule]]\nwho = []\nallow = [\"admin\"]".into(), "`who` is empty"),
        ("[[rule]]\nwho = [\"a\"]\nallow = [\"admin\"]".into(), "who \"a\": a caller is `client:NAME`"),
        ("[[rule]]\nwho = [\"clinet:a\"]\nallow = [\"admin\"]".into(), "a caller is `client:NAME`"),
        ("[[rule]]\nwho = [\"client:\"]\nallow = [\"admin\"]".into(), "a name has 1 to 64"),
        ("[[rule]]\nwho = [\"client:a*b\"]\nallow = [\"admin\"]".into(), "a name has 1 to 64"),
        ("[[rule]]\nallow = [\"admin\"]".into(), "missing field `who`"),
        ("\n\nrule = 7".into(), "line 3: "),
    ] {
        let error = rules(&text).expect_err("it is refused").to_string();
        assert!(error.starts_with("api.acl: /etc/acl.toml") && error.contains(wanted), "{error}");
    }
    let second = format!("{}\n[[rule]]\nwho = [\"*\"]\nallow = [\"fly\"]", who_allow("allow = [\"admin\"]"));
    let error = rules(&second).expect_err("it is refused").to_string();
    assert!(error.contains("line 5: rule 2: "), "{error}");
}

#[test]
fn tokens_are_known_by_their_hash() {
    let (one, two) = (NewToken::generate("ci").expect("random"), NewToken::generate("ci").expect("random"));
    let other = NewToken::generate("a.b").expect("random");
    assert_ne!(one.token(), two.token());
    assert!(!one.line().contains(one.token().rsplit('.').next().expect("a secret")));
    let text = format!("# all of them\n\n{} # the old one\n  {}\n{}\n", one.line(), two.line(), other.line());
    let known = Tokens::parse(Path::new("tokens"), &text).expect("good lines");
    assert_eq!(known.count(), 3);
    let has = |token: &str| PresentedToken::read(token).is_some_and(|shown| known.has(&shown));
    assert!(has(one.token()) && has(two.token()) && has(other.token()));
    let foreign = NewToken::generate("ci").expect("random");
    for wrong in [foreign.token(), "ci.", "ci", "", ".", &one.token()[..20], &format!("{}x", one.token())] {
        assert!(!has(wrong), "{wrong}");
    }
    // The name is part of the hashed token.
    assert!(!has(&one.token().replacen("ci.", "a.b.", 1)));
    assert!(NewToken::generate("no spaces").is_err() && NewToken::generate("").is_err());
}

#[test]
fn a_bad_line_of_tokens_is_named_and_never_repeated() {
    let good = NewToken::generate("ci").expect("random");
    let hash = good.line().split(' ').nth(1).expect("a hash").to_owned();
    for line in [
        "ci".to_owned(),
        format!("ci {}", good.token()),
        format!("ci {}", &hash[..70]),
        format!("ci {hash}0"),
        format!("ci {}", hash.replace("sha256:", "md5:")),
        format!("c/i {hash}"),
        format!("ci {hash} more"),
        format!("ci sha256:{}", "é".repeat(32)),
    ] {
        let error =
            Tokens::parse(Path::new("/etc/tokens"), &format!("\n{line}\n")).expect_err("it is refused");
        let error = error.to_string();
        assert!(error.starts_with("api.tokens: /etc/tokens, line 2: "), "{error}");
        assert!(!error.contains(good.token()), "{error}");
    }
}

const FROM: &str = "192.0.2.1:5";

struct Place {
    dir: TempDir,
    files: AccessFiles,
}

impl Place {
    fn new(acl: Option<&str>, tokens: Option<&str>) -> Place {
        let dir = TempDir::new().expect("a temporary folder");
        let file = |name: &str, text: Option<&str>| {
            text.map(|text| {
                fs::write(dir.path().join(name), text).expect("it is written");
                dir.path().join(name)
            })
        };
        let files = AccessFiles { acl: file("acl", acl), tokens: file("tokens", tokens), anonymous: false };
        Place { dir, files }
    }

    fn open(&self) -> Arc<Access> {
        Arc::new(Access::open(self.files.clone()).expect("good files"))
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).expect("it is written");
    }
}

fn admit(
    access: &Arc<Access>,
    certificate: Option<&str>,
    authorization: Option<&str>,
) -> Result<Authorizer, Refused> {
    let from: SocketAddr = FROM.parse().expect("an address");
    let certificate = certificate.map(Arc::from);
    access.admit(from, certificate.as_ref(), authorization.map(str::as_bytes))
}

fn lock(name: &str) -> LockName {
    LockName::try_from(name).expect("a name")
}

#[test]
fn a_caller_is_known_by_token_before_certificate() {
    let made = NewToken::generate("ci").expect("random");
    let bearer = format!("Bearer {}", made.token());
    let small = bearer.replace("Bearer", "bearer");
    let place = Place::new(None, Some(made.line()));
    let access = place.open();
    assert!(access.takes_strangers());
    let who = |certificate, authorization| {
        admit(&access, certificate, authorization).map(|authorizer| authorizer.principal().clone())
    };
    assert_eq!(who(Some("app"), None), Ok(client("app")));
    assert_eq!(who(None, Some(&bearer)), Ok(token("ci")));
    assert_eq!(who(Some("app"), Some(&bearer)), Ok(token("ci")));
    assert_eq!(who(None, Some(&small)), Ok(token("ci")));
    assert_eq!(who(None, None), Err(Refused::Nobody));
    // A valid certificate does not make up for an invalid token.
    assert_eq!(who(Some("app"), Some("Basic eDp5")), Err(Refused::NoToken));
    assert_eq!(who(Some("app"), Some("Bearer ci.abc")), Err(Refused::UnknownToken("ci".into())));
    assert_eq!(access.figures().unknown(), 3);

    let certificates_only = Place::new(None, None).open();
    assert!(!certificates_only.takes_strangers());
    assert_eq!(admit(&certificates_only, None, Some(&bearer)).err(), Some(Refused::TokensNotTaken));
    let anonymous = AccessFiles { anonymous: true, ..AccessFiles::default() };
    let open = Arc::new(Access::open(anonymous).expect("no files"));
    assert_eq!(
        admit(&open, None, None).map(|authorizer| authorizer.principal().clone()),
        Ok(Principal::Anonymous)
    );
}

#[test]
fn without_a_file_everything_is_allowed() {
    let authorizer = admit(&Place::new(None, None).open(), Some("app"), None).expect("a certificate");
    assert!(authorizer.allows_everything());
    for action in Action::ALL {
        assert_eq!(authorizer.check(action, Resource::Lock(&lock("x"))), Ok(()));
    }
}

#[test]
fn a_refusal_says_who_what_and_why_and_is_counted() {
    let access = Place::new(Some(RULES), None).open();
    let authorizer = admit(&access, Some("app"), None).expect("a certificate");
    let refused =
        authorizer.check(Action::AcquireExclusive, Resource::Lock(&lock("a\"\n"))).expect_err("no rule");
    assert_eq!(
        refused.to_string(),
        "client app may not acquire-exclusive the lock \"a\\\"\\n\": no rule of this server (api.acl) allows it"
    );
    let long = lock(&"\u{1}".repeat(1024));
    assert!(
        authorizer.check(Action::Describe, Resource::Lock(&long)).expect_err("no rule").to_string().len()
            < 600
    );
    let keys = Key::prefix_bytes(b"accounts", b"us/").expect("a prefix");
    for (what, shown) in [
        (Resource::Keys(&keys), "the keys of bucket \"accounts\" that begin with \"us/\""),
        (Resource::Keys(&keys[..9]), "all keys of bucket \"accounts\""),
        (Resource::Key(&key("accounts", "us/1")), "the key \"us/1\" of bucket \"accounts\""),
    ] {
        let refused = authorizer.check(Action::Read, what).expect_err("no rule").to_string();
        assert!(refused.contains(shown), "{refused}");
    }
    assert!(authorizer.check_any(&[Action::Write, Action::Admin], "fly").is_err());
    assert!(authorizer.check_any(&[Action::Write, Action::Read], "fly").is_ok());
    let counted: Vec<_> = access.figures().denied().filter(|(_, count)| *count > 0).collect();
    assert_eq!(counted, [(Action::AcquireExclusive, 1), (Action::Describe, 1), (Action::Read, 3)]);
    assert_eq!((access.figures().nothing_to_do(), access.figures().unknown()), (1, 0));
}

#[test]
fn rules_and_tokens_change_together_or_not_at_all() {
    let made = NewToken::generate("ci").expect("random");
    let bearer = format!("Bearer {}", made.token());
    let rule = |prefix: &str| {
        format!("[[rule]]\nwho = [\"token:ci\"]\nallow = [\"describe\"]\nlocks = [\"{prefix}\"]")
    };
    let place = Place::new(Some(&rule("a")), Some(made.line()));
    let access = place.open();
    let mut authorizer = admit(&access, None, Some(&bearer)).expect("a good token");
    let mut may = |name: &str| {
        authorizer.renew()?;
        authorizer.check(Action::Describe, Resource::Lock(&lock(name)))
    };
    assert!(may("a").is_ok() && may("b").is_err());

    place.write("acl", &rule("b"));
    assert!(may("a").is_ok(), "nobody said to read it");
    access.reload().expect("good files");
    assert!(may("a").is_err() && may("b").is_ok());

    place.write("acl", "[[rule]]");
    place.write("tokens", "");
    let error = access.reload().expect_err("a broken rule").to_string();
    assert!(error.contains("line 1") && error.contains("who"), "{error}");
    assert!(may("a").is_err() && may("b").is_ok(), "the old rules, and the old tokens");
    assert_eq!(access.figures().reloads(), (1, 1));

    place.write("acl", &rule("b"));
    access.reload().expect("good files");
    assert_eq!(may("b"), Err(Refused::UnknownToken("ci".into())), "withdrawn");
    fs::remove_file(place.dir.path().join("acl")).expect("it was there");
    assert!(matches!(access.reload(), Err(AccessError::Read { key: "api.acl", .. })));
}

proptest! {
    #[test]
    fn whatever_a_file_or_a_call_says_is_an_error_at_worst(
        text in "([\\[\\]{}=\"',#\n .:*a-z]|\\[\\[rule\\]\\]\n|who = |allow = |sha256:|\\PC){0,60}",
        authorization in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        // The text contains no hash of 64 digits.
        prop_assert!(Tokens::parse(Path::new("x"), &text).map_or(0, |tokens| tokens.count()) == 0);
        if let Ok(rules) = rules(&text) {
            prop_assert!(rules.count() > 0);
        }
        let access = Place::new(None, Some("")).open();
        for shown in [authorization.clone(), [b"Bearer ", &authorization[..]].concat()] {
            let from = FROM.parse().expect("an address");
            prop_assert!(access.admit(from, None, Some(&shown)).is_err());
        }
    }
}

#[test]
fn files_that_are_none_are_not_read() {
    let place = Place::new(Some(&"#".repeat((1 << 20) + 1)), None);
    let error = Access::open(place.files.clone()).expect_err("too large").to_string();
    assert!(error.contains("at most 1 MiB"), "{error}");
}

#[test]
fn digests_tell_what_files_mean_and_not_how_they_are_written() {
    let other_order = r#"
[[rule]]
who = ["client:ops"]
allow = ["force-release", "admin", "write"]
keys = [{}]
locks = ["x"]

[[rule]]
who = ["token:batch-*", "client:payments"]
allow = ["describe", "acquire-exclusive"]
locks = ["audit", "payments/"]
"#;
    let first_and_last = {
        let rules: Vec<&str> = RULES.split("[[rule]]").collect();
        format!("[[rule]]{}[[rule]]{}", rules[1], rules[4])
    };
    let digest = |text: &str| rules(text).expect("good rules").digest();
    assert_eq!(digest(other_order), digest(&first_and_last));
    // One word makes another meaning.
    for (word, other) in
        [("batch-*", "batch-"), ("token:", "client:"), ("admin", "read"), ("audit", "audits")]
    {
        assert_ne!(digest(other_order), digest(&other_order.replace(word, other)), "{word}");
    }
    assert_ne!(digest(other_order), digest(RULES));

    let line = |name| NewToken::generate(name).expect("a good name").line().to_owned();
    let (a, b) = (line("a"), line("b"));
    let tokens = |text: &str| Tokens::parse(Path::new("tokens"), text).expect("good tokens").digest();
    assert_eq!(tokens(&format!("{a}\n{b}\n")), tokens(&format!("# two\n{b}\n\n{a} # the first\n")));
    assert_ne!(tokens(&a), tokens(&format!("{a}\n{b}\n")));
    assert_ne!(tokens(&a), tokens(&line("a")), "of the same name, with another secret");
}

#[test]
fn a_star_is_all_buckets_and_no_part_of_a_name() {
    let with = |keys: &str| {
        let text = format!("[[rule]]\nwho = [\"*\"]\nallow = [\"read\"]\nkeys = [{{ {keys} }}]\n");
        Rules::parse(Path::new("acl.toml"), &text).map_err(|error| error.to_string())
    };
    let all = with("bucket = \"*\"").expect("all buckets").rights(&client("any"));
    assert!(all.allows(Action::Read, key("accounts", "eu/1").as_bytes()));
    for (keys, why) in [
        ("bucket = \"acc*\"", "a rule names one bucket, or all"),
        ("bucket = \"*\", prefix = \"eu/\"", "a `prefix` needs a `bucket`"),
    ] {
        let error = with(keys).expect_err(keys);
        assert!(error.contains(why), "{error}");
    }
}
