//! Bodies of fuzz targets, see `crate::testkit::fuzz`.

use super::format::{CheckpointHeader, SEGMENT_HEADER, SegmentHeader, VERSION};
use super::scan::{End, scan};

/// Scans a segment: first as it is, then with a valid header, so that the bytes after it are scanned, too.
pub(crate) fn segment(data: &[u8]) -> bool {
    let own = SegmentHeader::decode(data).is_ok_and(|header| read(data, &header));
    let Some(header) = sound_header(data) else { return own };
    let mut sound = header.encode().to_vec();
    sound.extend_from_slice(&data[SEGMENT_HEADER..]);
    assert_eq!(SegmentHeader::decode(&sound), Ok(header), "a header is read as it was written");
    own | read(&sound, &header)
}

/// Returns a valid header with the numbers of these bytes, whatever their checksum.
fn sound_header(data: &[u8]) -> Option<SegmentHeader> {
    let bytes = data.get(..SEGMENT_HEADER)?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
    let dc = geolock_api::names::DcId::new(bytes[9] % 64).expect("there are 64");
    let identity = super::Identity { cluster: geolock_api::names::ClusterId::from_raw(number(16)), dc };
    Some(SegmentHeader {
        version: VERSION,
        identity,
        first: number(24).max(1),
        chain: number(8) as u32,
        salt: number(32),
    })
}

/// Returns true if there are records in it. As the newest segment it may be torn, as an older one it may not.
fn read(bytes: &[u8], header: &SegmentHeader) -> bool {
    let mut records = 0_u64;
    let torn = scan(bytes, header, End::Torn, |position, _| {
        assert_eq!(position, header.first + records, "positions have no gaps");
        records += 1;
    });
    if let Ok(scanned) = &torn {
        assert!(scanned.len <= bytes.len() && scanned.next == header.first + records);
    }
    let sealed = scan(bytes, header, End::Sealed, |_, _| {});
    assert!(torn.is_ok() || sealed.is_err(), "what is damage to the newest is damage to any");
    torn.is_ok() && records > 0
}

/// Decodes the header of a checkpoint.
pub(crate) fn checkpoint(data: &[u8]) -> bool {
    let Ok(header) = CheckpointHeader::decode(data) else { return false };
    let again = CheckpointHeader::decode(&header.encode());
    assert_eq!(again, Ok(header), "a header is read as it was written");
    true
}

#[cfg(test)]
fn identity() -> super::Identity {
    let dc = geolock_api::names::DcId::new(1).expect("a small id");
    super::Identity { cluster: geolock_api::names::ClusterId::of("fuzz"), dc }
}

/// Returns a segment with these records, each in a batch of its own.
#[cfg(test)]
pub(crate) fn segment_bytes(records: &[Vec<u8>]) -> Vec<u8> {
    let header = SegmentHeader { version: VERSION, identity: identity(), first: 4, chain: 9, salt: 7 };
    let mut bytes = header.encode().to_vec();
    for (position, record) in (header.first..).zip(records) {
        let mut body = Vec::new();
        super::format::put_record(&mut body, record);
        bytes.extend_from_slice(&super::format::FrameHeader::of(&body, position, header.salt).encode());
        bytes.extend_from_slice(&body);
    }
    bytes
}

/// Returns the header of a checkpoint.
#[cfg(test)]
pub(crate) fn checkpoint_bytes() -> Vec<u8> {
    CheckpointHeader { identity: identity(), position: 3, len: 5, body_crc: 6 }.encode().to_vec()
}
