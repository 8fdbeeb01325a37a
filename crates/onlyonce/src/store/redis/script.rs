//! The scripts: one for each operation, so that its guard and its write are one step of the server.

use ::redis::Cmd;

/// A script of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Load,
    Claim,
    Swap,
    Renew,
    Scan,
    Sweep,
    Hold,
    Beat,
    Check,
    Keep,
    Forget,
    Find,
}

impl Script {
    pub(crate) const ALL: [Self; 12] = [
        Self::Load,
        Self::Claim,
        Self::Swap,
        Self::Renew,
        Self::Scan,
        Self::Sweep,
        Self::Hold,
        Self::Beat,
        Self::Check,
        Self::Keep,
        Self::Forget,
        Self::Find,
    ];

    pub(super) fn text(self) -> &'static str {
        macro_rules! script {
            ($($part:literal)*) => { concat!($(include_str!($part)),*) };
        }
        match self {
            Self::Load => script!("lua/common.lua" "lua/one.lua" "lua/load.lua"),
            Self::Claim => script!("lua/common.lua" "lua/one.lua" "lua/claim.lua"),
            Self::Swap => script!("lua/common.lua" "lua/one.lua" "lua/swap.lua"),
            Self::Renew => script!("lua/common.lua" "lua/one.lua" "lua/renew.lua"),
            Self::Scan => script!("lua/common.lua" "lua/many.lua" "lua/scan.lua"),
            Self::Sweep => script!("lua/common.lua" "lua/many.lua" "lua/sweep.lua"),
            Self::Hold => script!("lua/common.lua" "lua/many.lua" "lua/hold.lua"),
            Self::Beat => script!("lua/common.lua" "lua/many.lua" "lua/beat.lua"),
            Self::Check => script!("lua/common.lua" "lua/check.lua"),
            Self::Keep => include_str!("../layered/keep.lua"),
            Self::Forget => include_str!("../layered/forget.lua"),
            Self::Find => include_str!("../layered/find.lua"),
        }
    }
}

/// A call of a script, with what it is given.
#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    pub(crate) script: Script,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) args: Vec<Vec<u8>>,
}

impl Invocation {
    /// By its digest: the server has it.
    pub(super) fn by_digest(&self, digest: &str) -> Cmd {
        self.command("EVALSHA", digest)
    }

    /// With its text: the server has forgotten it.
    pub(super) fn by_text(&self) -> Cmd {
        self.command("EVAL", self.script.text())
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = ::redis::cmd(name);
        command.arg(script).arg(self.keys.len());
        for part in self.keys.iter().chain(&self.args) {
            command.arg(part.as_slice());
        }
        command
    }
}
