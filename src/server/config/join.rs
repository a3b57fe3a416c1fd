//! The options of a server that joins a running cluster. Its cluster and its id are those of its certificate;
//! it gets the options that all members have in common from the members.

use super::Member;
use super::assemble::{Place, check_address, check_name, listen, tls};
use super::error::ConfigError;
use super::sources::{Quoted, Sources};
use crate::membership::JoinPolicy;
use crate::pki::{Credentials, Role};
use geolock_api::names::DcId;

/// Returns the place of a server that joins; `None` for one that founds its cluster.
pub(super) fn join(from: &Sources<'_>) -> Result<Option<Place>, ConfigError> {
    let Some(given) = from.optional("join", |o| &o.join).filter(|given| !given.value.is_empty()) else {
        return Ok(None);
    };
    check_address(&given, given.value)?;
    let members = from.list("member", |o| &o.member);
    if let Some(first) = members.value.first() {
        let allowed =
            "a server that joins learns the members from the cluster: leave them out, or leave out join";
        return Err(members.refuse(Quoted(&first.name), allowed));
    }
    let (cluster, dc) = identity(from)?;
    let name = from.required("name", "the name of this server for people, with join", |o| &o.name)?;
    check_name(&name, name.value)?;
    let member = Member { dc, name: name.value.clone(), address: address(from)? };
    Ok(Some(Place { cluster, dc, members: vec![member], join: Some(given.value.clone()) }))
}

/// Returns the cluster and the id of the certificate. The options may name them, too, and must not differ.
fn identity(from: &Sources<'_>) -> Result<(String, DcId), ConfigError> {
    let dir = tls(from)?.dc;
    let given = from.required("tls.dc", "a folder with a certificate", |o| &o.tls.dc)?;
    let identity = Credentials::load(&dir).map_err(|source| given.refuse_certificate(source))?;
    let identity = identity.identity().clone();
    let Role::Dc(dc) = identity.role else {
        return Err(given.refuse(dir.display(), "a folder with the certificate of a datacenter"));
    };
    if let Some(named) = from.optional("cluster.name", |o| &o.cluster.name)
        && *named.value != identity.cluster
    {
        let allowed = format!("the cluster of the certificate, which is {}", identity.cluster);
        return Err(named.refuse(Quoted(named.value), allowed));
    }
    if let Some(id) = from.optional("dc", |o| &o.dc)
        && *id.value != u64::from(dc.get())
    {
        return Err(id.refuse(id.value, format!("the id of the certificate, which is {}", dc.get())));
    }
    Ok((identity.cluster, dc))
}

fn address(from: &Sources<'_>) -> Result<String, ConfigError> {
    if let Some(given) = from.optional("address", |o| &o.address).filter(|given| !given.value.is_empty()) {
        check_address(&given, given.value)?;
        return Ok(given.value.clone());
    }
    let quic = listen(from)?.quic;
    if quic.ip().is_unspecified() || quic.port() == 0 {
        let what = "host:port at which the others reach this server, as listen.quic names no single address";
        return Err(from.missing("address", what));
    }
    Ok(quic.to_string())
}

/// Returns the policy for servers that join later.
pub(super) fn policy(from: &Sources<'_>) -> Result<JoinPolicy, ConfigError> {
    let Some(given) = from.optional("cluster.join_policy", |o| &o.cluster.join_policy) else {
        return Ok(JoinPolicy::default());
    };
    match given.value.as_str() {
        "operator" => Ok(JoinPolicy::Operator),
        "auto" => Ok(JoinPolicy::Auto),
        other => Err(given.refuse(Quoted(other), "operator or auto")),
    }
}
