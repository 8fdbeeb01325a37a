//! What the benchmarks share: a load, the physical limit, and a summary.

pub mod limit;
pub mod load;
pub mod operation;
pub mod pgbench;
pub mod proxy;
pub mod request;
pub mod stats;
pub mod upstream;
