//! The scripts: one for each kind of write, so that its guard and the write are one step of the server.

use ::redis::Cmd;

macro_rules! scripts {
    ($($name:ident: $($part:literal)+;)+) => {
        /// A script of the store, or of the filter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Script { $($name,)+ }

        impl Script {
            /// In the order of the scripts, which is that of their digests in a connection.
            pub(super) const TEXTS: &[&str] = &[$(concat!($(include_str!($part)),+),)+];
        }
    };
}

scripts! {
    Load: "lua/common.lua" "lua/record.lua" "lua/load.lua";
    Claim: "lua/common.lua" "lua/record.lua" "lua/claim.lua";
    Complete: "lua/common.lua" "lua/record.lua" "lua/complete.lua";
    Put: "lua/common.lua" "lua/record.lua" "lua/put.lua";
    Renew: "lua/common.lua" "lua/record.lua" "lua/renew.lua";
    Scan: "lua/common.lua" "lua/scan.lua";
    CheckValue: "lua/common.lua" "lua/check.lua";
    Size: "lua/size.lua";
    Admit: "lua/admit.lua";
    FilterKeep: "../layered/keep.lua";
    FilterForget: "../layered/forget.lua";
    FilterFind: "../layered/find.lua";
}

/// A call of a script, with its keys and arguments.
#[derive(Clone, Debug)]
pub(crate) struct ScriptCall {
    pub(crate) script: Script,
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<Vec<u8>>,
}

impl ScriptCall {
    /// `EVALSHA` with the digest of the script, or `EVAL` with its text for a server that has forgotten the script.
    pub(super) fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = ::redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.args);
        command
    }
}
