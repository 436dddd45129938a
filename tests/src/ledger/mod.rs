//! Point 1 of the ledger: it closes to the sector in every way to write that
//! we know, and each sector is where it must be. The test's own reading of
//! `/sys/block/DEV/stat` is the measure of every sum.

mod apps;
mod buffered;
mod device;
mod edges;
mod forced;
mod hooks;
mod journal;
mod queue;
mod sync;

use crate::harness::Test;

/// All of them; every one needs a tracer.
pub fn tests() -> Vec<Test> {
    let groups = [
        hooks::tests(),
        buffered::tests(),
        forced::tests(),
        sync::tests(),
        apps::tests(),
        journal::tests(),
        queue::tests(),
        device::tests(),
        edges::tests(),
    ];
    let tests = groups.into_iter().flatten();
    tests
        .map(|test| test.needs(crate::tracer::available))
        .collect()
}
