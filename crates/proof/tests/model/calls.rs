//! The store call that a request waits for: answered, without an answer, or late.

use onlyonce::engine::Write;
use onlyonce::engine::table::RecordEvent;

use crate::claiming::{Sent, taken};
use crate::promises;
use crate::protocol::{Fate, Protocol};
use crate::request::{Request, Told, draft, token};
use crate::settling::settled;
use crate::world::{Event, Late, World};

impl Protocol {
    /// The store call that a request waits for.
    pub(crate) fn call(&self, world: &mut World, index: usize, fate: Fate) {
        let request = world.requests[index].clone();
        if fate != Fate::Answered {
            world.budget.faults -= 1;
        }
        if fate == Fate::Delayed {
            world.late.extend(copy_of(&request, index));
            return world.requests[index].be_unsure();
        }
        // A repeated call waits behind its copy that may still be on its way.
        let copy = copy_of(&request, index);
        while let Some(at) = world.late.iter().position(|late| Some(late) == copy.as_ref()) {
            let late = world.late.remove(at);
            self.arrive(world, &late);
        }
        match self.answered(world, index, request, fate == Fate::Answered) {
            Some(next) => world.requests[index] = next,
            None => world.requests[index].be_unsure(),
        }
    }

    /// The call reaches the store; what the request makes of the answer, if it hears it.
    fn answered(
        &self,
        world: &mut World,
        index: usize,
        request: Request,
        is_heard: bool,
    ) -> Option<Request> {
        match request {
            Request::Claiming { token, sent_at, not_after, .. } => {
                let draft = draft(index, token, not_after);
                let seen = self.claim(world, &draft);
                is_heard.then(|| self.claimed(world, index, Sent { token, sent_at, draft }, &seen))
            }
            Request::Taking { token, sent_at, write, event, .. } => {
                let is_done = self.swap(world, event, &write.0);
                is_heard.then(|| taken(world, (token, sent_at), &write.0, is_done))
            }
            Request::Settling { owner, write, event, answer, .. } => {
                let is_done = self.swap(world, event, &write.0);
                is_heard.then(|| {
                    promises::last_word(world, owner.token(), owner.from, event.0);
                    settled(world, index, owner, answer, is_done)
                })
            }
            Request::Disowned { token: number, from, not_after } => {
                let write = Write::release(token(number), from.taken_from());
                self.swap(world, Event(RecordEvent::Release, None), &write);
                (world.clocks.store() > not_after).then(|| {
                    promises::last_word(world, token(number), from, RecordEvent::Release);
                    Request::Told(Told::StoreDown)
                })
            }
            _ => None,
        }
    }
}

fn copy_of(request: &Request, index: usize) -> Option<Late> {
    match request {
        Request::Claiming { token, not_after, .. } => {
            Some(Late::Claim { request: index, token: *token, not_after: *not_after })
        }
        Request::Taking { write, event, .. } | Request::Settling { write, event, .. } => {
            Some(Late::Swap(*event, write.clone()))
        }
        _ => None,
    }
}
