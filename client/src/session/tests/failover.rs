//! Endpoints of other datacenters, as transcripts.

use super::talk::{Talk, opened, refused};
use crate::error::LostReason;
use crate::tag::Tag;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, OnDisconnect, Reason};

#[test]
fn a_lease_that_another_datacenter_does_not_know_is_lost_for_that_reason() {
    let welcome = |dc: u32, name: &str| {
        Answer::Welcome(proto::Welcome { revision: 1, dc, dc_name: name.into(), ..Default::default() })
    };
    let mut talk = Talk::new(2, OnDisconnect::Keep);
    talk.session.connected(talk.now);
    talk.hear(Tag::Hello, welcome(0, "fra"));
    talk.hear(Tag::OpenLease, opened(7));
    talk.outputs();
    talk.said();
    let held = talk.hold("a", 40);
    talk.reconnect();
    talk.hear(Tag::Hello, welcome(1, "iad"));
    talk.hear(Tag::AttachLease, refused(Reason::UnknownLease));
    let Some(LostReason::OtherDatacenter { lease, answers }) = talk.session.lost(talk.now, held) else {
        panic!("it is lost for that reason");
    };
    assert_eq!((&*lease, &*answers), ("dc0 (fra)", "dc1 (iad)"));
}
