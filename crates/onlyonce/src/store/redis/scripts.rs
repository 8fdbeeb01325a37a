//! The scripts: one for each operation, so that its guard and its write are one step of the server.

use ::redis::Cmd;

/// A script of the store, or of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Load,
    Claim,
    Swap,
    Renew,
    Scan,
    CheckValue,
    FilterKeep,
    FilterForget,
    FilterFind,
}

impl Script {
    /// In the order of their declaration, which is the index of their digests in a connection.
    pub(super) const ALL: [Self; 9] = [
        Self::Load,
        Self::Claim,
        Self::Swap,
        Self::Renew,
        Self::Scan,
        Self::CheckValue,
        Self::FilterKeep,
        Self::FilterForget,
        Self::FilterFind,
    ];

    pub(super) fn text(self) -> &'static str {
        macro_rules! script {
            ($($part:literal)*) => { concat!($(include_str!($part)),*) };
        }
        match self {
            Self::Load => script!("lua/common.lua" "lua/record.lua" "lua/load.lua"),
            Self::Claim => script!("lua/common.lua" "lua/record.lua" "lua/claim.lua"),
            Self::Swap => script!("lua/common.lua" "lua/record.lua" "lua/swap.lua"),
            Self::Renew => script!("lua/common.lua" "lua/record.lua" "lua/renew.lua"),
            Self::Scan => script!("lua/common.lua" "lua/scan.lua"),
            Self::CheckValue => script!("lua/common.lua" "lua/check.lua"),
            Self::FilterKeep => include_str!("../layered/keep.lua"),
            Self::FilterForget => include_str!("../layered/forget.lua"),
            Self::FilterFind => include_str!("../layered/find.lua"),
        }
    }
}

/// A call of a script, with its keys and arguments.
#[derive(Clone, Debug)]
pub(crate) struct ScriptCall {
    pub(crate) script: Script,
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<Vec<u8>>,
}

impl ScriptCall {
    /// By the digest of the script, which the server must know.
    pub(super) fn by_digest(&self, digest: &str) -> Cmd {
        self.command("EVALSHA", digest)
    }

    /// With the text of the script, for a server that has forgotten it.
    pub(super) fn by_text(&self) -> Cmd {
        self.command("EVAL", self.script.text())
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = ::redis::cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys);
        for arg in &self.args {
            command.arg(arg.as_slice());
        }
        command
    }
}
