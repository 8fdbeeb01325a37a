#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::admin_query::target(data));
