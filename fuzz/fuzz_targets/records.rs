//! Records and pieces of snapshots: any bytes are read or refused, and what is read can be written again.
#![no_main]

use leasehold_core::{Entry, Transition};
use leasehold_store::{Batch, Chunk, ChunkWriter};
use libfuzzer_sys::fuzz_target;

/// The checksum stands in these bytes, and covers all others.
const SUM: std::ops::Range<usize> = 2..6;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    // Hardly any bytes have the right checksum by chance.
    if bytes.len() > SUM.end {
        let mut sealed = bytes.to_vec();
        let mut sum = crc32fast::Hasher::new();
        sum.update(&sealed[..SUM.start]);
        sum.update(&sealed[SUM.end..]);
        sealed[SUM].copy_from_slice(&sum.finalize().to_le_bytes());
        read(&sealed);
    }
});

fn read(bytes: &[u8]) {
    if let Ok(batch) = Batch::parse(bytes) {
        let read: Result<Vec<Transition>, _> = batch.transitions().collect();
        if let Ok(transitions) = read {
            let again = Batch::new(batch.epoch(), batch.seq(), &transitions);
            let read: Result<Vec<Transition>, _> = again.transitions().collect();
            assert_eq!(read, Ok(transitions));
        }
    }
    if let Ok(chunk) = Chunk::parse(bytes) {
        let read: Result<Vec<Entry>, _> = chunk.entries().collect();
        if let Ok(entries) = read {
            let mut again = ChunkWriter::new(chunk.epoch(), chunk.as_of(), chunk.index());
            entries.iter().for_each(|entry| again.push(entry));
            let read: Result<Vec<Entry>, _> = again.seal().entries().collect();
            assert_eq!(read, Ok(entries));
        }
    }
}
