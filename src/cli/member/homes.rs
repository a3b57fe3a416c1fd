//! `geolock member home`: shows or sets the homes of prefixes of lock names.

use geolock_client::AdminClient;
use serde_json::{Map, Value, json};

use crate::cli::connect;
use crate::cli::failure::Failure;
use crate::cli::print::{insert_name, lock_name, number, print, table};
use geolock_api::names::DcId;
use geolock_api::proto::{ListMembersResponse, PrefixHome};

/// Shows all homes of prefixes.
pub(super) async fn show(admin: &AdminClient, as_json: bool) -> Result<(), Failure> {
    let list = admin.members().await.map_err(connect::failure)?;
    if as_json { print(json!({ "homes": rows(&list) })) } else { print(text(&list)) }
}

/// Gives the locks below a prefix a home, or none.
pub(super) async fn set(
    admin: &AdminClient,
    prefix: &str,
    home: Option<DcId>,
    as_json: bool,
) -> Result<(), Failure> {
    let id = home.map(|home| home.get().into());
    let decision = admin.set_home(prefix.as_bytes(), id).await.map_err(connect::failure)?;
    if as_json {
        return print(json!({ "decision": number(decision) }));
    }
    match home {
        Some(home) => print(format_args!("{home} is the home of {prefix}* (decision {decision}).")),
        None => print(format_args!("{prefix}* has no home any more (decision {decision}).")),
    }
}

fn text(list: &ListMembersResponse) -> String {
    if list.homes.is_empty() {
        return "No prefix has a home.".into();
    }
    let name = |dc: u32| {
        let member = list.members.iter().find(|member| member.dc == dc);
        member.map(|member| member.name.clone()).unwrap_or_default()
    };
    let row =
        |row: &PrefixHome| vec![lock_name(&row.prefix, None), format!("dc{}", row.home), name(row.home)];
    let header = ["PREFIX", "HOME", "NAME"].map(String::from).to_vec();
    table(&[header].into_iter().chain(list.homes.iter().map(row)).collect::<Vec<_>>())
}

fn rows(list: &ListMembersResponse) -> Vec<Value> {
    let row = |row: &PrefixHome| {
        let mut object = Map::new();
        insert_name(&mut object, "prefix", &row.prefix);
        object.insert("home".into(), row.home.into());
        Value::Object(object)
    };
    list.homes.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_api::proto::Member;

    #[test]
    fn homes_are_listed_with_the_names_of_their_datacenters() {
        let mut list = ListMembersResponse::default();
        assert_eq!(text(&list), "No prefix has a home.");
        list.homes = vec![PrefixHome { prefix: "jobs/".into(), home: 1 }];
        list.members = vec![Member { dc: 1, name: "fra".into(), ..Member::default() }];
        assert_eq!(text(&list), "PREFIX  HOME  NAME\njobs/   dc1   fra");
        assert_eq!(json!(rows(&list)), json!([{ "prefix": "jobs/", "home": 1 }]));
    }
}
