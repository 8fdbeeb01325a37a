//! Errors of the disk, and files that vanish.
