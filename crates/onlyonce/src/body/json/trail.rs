//! Which pointers lead to the value that is being read, or through it.

use crate::pointer::Pointer;

/// One frame for the document and for each value that is open; without pointers, for the document only.
pub(super) struct Trail<'p> {
    pointers: Vec<(&'p Pointer, Role)>,
    /// The pointers of each frame, as indices, one frame after the other.
    live: Vec<usize>,
    frames: Vec<Frame>,
}

#[derive(Clone, Copy)]
enum Role {
    Include(usize),
    Exclude,
}

#[derive(Clone, Copy, Default)]
struct Frame {
    start: usize,
    is_excluded: bool,
}

impl<'p> Trail<'p> {
    pub(super) fn new(include: &'p [Pointer], exclude: &'p [Pointer]) -> Self {
        let included = include.iter().enumerate().map(|(at, pointer)| (pointer, Role::Include(at)));
        let excluded = exclude.iter().map(|pointer| (pointer, Role::Exclude));
        let pointers: Vec<_> = included.chain(excluded).collect();
        let mut trail = Self { live: (0..pointers.len()).collect(), pointers, frames: Vec::new() };
        trail.push(0, false);
        trail
    }

    /// Steps into the value whose name or index `is_next` knows.
    pub(super) fn enter(&mut self, is_next: impl Fn(&str) -> bool) {
        if self.pointers.is_empty() {
            return;
        }
        let (parent, start, depth) = (self.here(), self.live.len(), self.depth());
        for at in parent.start..start {
            let pointer = self.live[at];
            if self.pointers[pointer].0.token(depth).is_some_and(&is_next) {
                self.live.push(pointer);
            }
        }
        self.push(start, parent.is_excluded);
    }

    pub(super) fn leave(&mut self) {
        if self.pointers.is_empty() {
            return;
        }
        if let Some(frame) = self.frames.pop() {
            self.live.truncate(frame.start);
        }
    }

    /// Whether any pointer leads to this value or through it.
    pub(super) fn is_watched(&self) -> bool {
        self.live.len() > self.here().start
    }

    pub(super) fn is_excluded(&self) -> bool {
        self.here().is_excluded
    }

    /// The included pointers that end here.
    pub(super) fn included(&self) -> impl Iterator<Item = usize> {
        self.ending().filter_map(|role| match role {
            Role::Include(at) => Some(at),
            Role::Exclude => None,
        })
    }

    fn push(&mut self, start: usize, is_excluded: bool) {
        self.frames.push(Frame { start, is_excluded });
        if self.ending().any(|role| matches!(role, Role::Exclude)) {
            self.frames.pop();
            self.frames.push(Frame { start, is_excluded: true });
        }
    }

    fn ending(&self) -> impl Iterator<Item = Role> {
        let live = self.live[self.here().start..].iter().map(|at| self.pointers[*at]);
        live.filter(|(pointer, _)| pointer.token(self.depth()).is_none()).map(|(_, role)| role)
    }

    fn here(&self) -> Frame {
        self.frames.last().copied().unwrap_or_default()
    }

    fn depth(&self) -> usize {
        self.frames.len() - 1
    }
}

/// Whether a token is this array index, written as RFC 6901 wants it.
pub(super) fn is_index(token: &str, index: usize) -> bool {
    let is_plain = token == "0" || !token.starts_with(['0', '+']);
    is_plain && token.parse() == Ok(index)
}
