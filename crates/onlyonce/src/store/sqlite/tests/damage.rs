//! Files that are not what was written.
