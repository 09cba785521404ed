//! Records come back as they were written, and nothing else passes for one.

mod any;
mod format;

use leasehold_core::{Ending, LeaseId, Millis, Namespace, Owner};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use any::{batch, chunk, entry, number, transition};

/// Reads all there is to read, and says whether it was in order to the end.
fn is_readable(bytes: &[u8]) -> bool {
    let batch = Batch::parse(bytes).is_ok_and(|batch| batch.transitions().all(|t| t.is_ok()));
    let chunk = Chunk::parse(bytes).is_ok_and(|chunk| chunk.entries().all(|e| e.is_ok()));
    batch || chunk
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn batch_comes_back_as_it_was(
        epoch in number(),
        seq in number(),
        transitions in vec(transition(), 0..12),
    ) {
        let batch = Batch::new(Epoch(epoch), Seq(seq), &transitions);
        let found = Batch::parse(batch.bytes()).unwrap();
        prop_assert_eq!(&found, &batch);
        prop_assert_eq!((found.epoch(), found.seq()), (Epoch(epoch), Seq(seq)));
        let decoded: Vec<Transition> = found.transitions().map(Result::unwrap).collect();
        prop_assert_eq!(decoded, transitions);
    }

    #[test]
    fn chunk_comes_back_as_it_was(
        place in (number(), number(), any::<u32>()),
        entries in vec(entry(), 0..8),
    ) {
        let (epoch, as_of, index) = place;
        let chunk = Chunk::new(Epoch(epoch), Seq(as_of), index, &entries);
        let found = Chunk::parse(chunk.bytes()).unwrap();
        prop_assert_eq!(&found, &chunk);
        prop_assert_eq!((found.epoch(), found.as_of(), found.index()), (Epoch(epoch), Seq(as_of), index));
        let decoded: Vec<Entry> = found.entries().map(Result::unwrap).collect();
        prop_assert_eq!(decoded, entries);
    }

    #[test]
    fn random_bytes_are_no_record(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(!is_readable(&bytes));
    }

    #[test]
    fn record_that_was_cut_off_is_no_record(batch in batch(), chunk in chunk(), cut in any::<prop::sample::Index>()) {
        for bytes in [batch.bytes(), chunk.bytes()] {
            prop_assert!(!is_readable(&bytes[..cut.index(bytes.len())]));
        }
    }

    #[test]
    fn record_with_a_changed_bit_is_no_record(batch in batch(), chunk in chunk(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        for bytes in [batch.bytes(), chunk.bytes()] {
            let mut bytes = bytes.to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(!is_readable(&bytes));
        }
    }

    // With the checksum put right again, as an attacker would do: anything may come of it but a panic.
    #[test]
    fn forged_content_never_panics(kind in 1..3u8, content in vec(any::<u8>(), 0..300)) {
        let mut bytes = vec![VERSION, kind, 0, 0, 0, 0];
        bytes.extend(content);
        reseal(&mut bytes);
        is_readable(&bytes);
    }

    #[test]
    fn forged_change_never_panics(
        batch in batch(),
        chunk in chunk(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for bytes in [batch.bytes(), chunk.bytes()] {
            let mut bytes = bytes.to_vec();
            for (at, byte) in &changes {
                let content = bytes.len() - SEAL_BYTES;
                bytes[SEAL_BYTES + at.index(content)] = *byte;
            }
            reseal(&mut bytes);
            is_readable(&bytes);
            bytes.truncate(SEAL_BYTES + cut.index(bytes.len() - SEAL_BYTES));
            reseal(&mut bytes);
            is_readable(&bytes);
        }
    }
}

#[test]
fn claimed_count_reserves_no_memory() {
    let mut writer = ChunkWriter::new(Epoch(1), Seq(1), 0);
    // A lease with as many grants as a number can say, and none of them there.
    writer.encoder.byte(2);
    writer.encoder.namespace(&Namespace::default());
    writer.encoder.lease(LeaseId::from_u128(1));
    writer.encoder.owner(&Owner::new("a").unwrap());
    writer.encoder.millis(Millis::new(1));
    writer.encoder.byte(0);
    writer.encoder.varint(u64::MAX);
    let chunk = writer.seal();
    let found: Vec<_> = chunk.entries().collect();
    assert_eq!(found, [Err(Fault::EndsEarly { what: "grant" })]);
}

#[test]
fn decoding_stops_at_the_first_fault() {
    let mut writer = BatchWriter::new(Epoch(1), Seq(1));
    writer.encoder.byte(99);
    writer.push(&Transition::EpochBegan { epoch: Epoch(1) });
    let found: Vec<_> = writer.seal().transitions().collect();
    assert_eq!(found, [Err(Fault::Value { what: "transition", at: 8 })]);
}

#[test]
fn batch_and_chunk_are_told_apart() {
    let batch = Batch::new(Epoch(1), Seq(1), []);
    let chunk = Chunk::new(Epoch(1), Seq(1), 0, []);
    let fault = Chunk::parse(batch.bytes()).unwrap_err();
    assert_eq!(fault.to_string(), "it is not a chunk of a snapshot");
    let fault = Batch::parse(chunk.bytes()).unwrap_err();
    assert_eq!(fault.to_string(), "it is not a journal record");
}

#[test]
fn secrets_are_not_printed() {
    let lease = LeaseId::from_u128(0x6162_6364_6566_6768);
    let ended =
        Transition::LeaseEnded { namespace: Namespace::default(), lease, ending: Ending::Released };
    let shown = format!("{:?}", Batch::new(Epoch(2), Seq(7), [&ended]));
    assert_eq!(shown, "Batch { epoch: Epoch(2), seq: Seq(7), byte_len: 35, .. }");
}
