//! What may happen next, and what must never have happened.

use std::time::Duration;

use onlyonce::engine::lapse::Lapses;
use onlyonce::engine::table::{self, Phase, RecordEvent, To};
use onlyonce::engine::{Asked as Question, Decision, Write, decide};
use onlyonce::policy::Recovery;
use onlyonce::record::{Record, SettledBy, State, TakenFrom};
use onlyonce::scope::OperationId;
use onlyonce::store::{Guard, Next, Seen};
use stateright::{Model, Property};

use crate::hashed::{Asked, answer_of};
use crate::request::{
    BY_OPERATOR, BY_POLICY, BY_RECONCILE, From, Owner, Request, STRANGER, Told, draft, fingerprint,
    response, token,
};
use crate::store::seen;
use crate::world::{
    Budget, End, Event, JUMP_MS, LEASE_MS, LONG_MS, Late, REQUESTS, SHORT_MS, World, Wrong,
};

/// A route with its recovery, and how much may happen.
#[derive(Clone)]
pub(crate) struct Protocol {
    pub(crate) recovery: Recovery,
    budget: Budget,
    /// A cell of the table that says the opposite.
    pub(crate) flip: Option<(Phase, RecordEvent)>,
}

impl Protocol {
    pub(crate) fn new(recovery: Recovery, budget: Budget) -> Self {
        Self { recovery, budget, flip: None }
    }

    pub(crate) fn with_flip(self, phase: Phase, event: RecordEvent) -> Self {
        Self { flip: Some((phase, event)), ..self }
    }

    /// The engine's table, but for the flipped cell.
    pub(crate) fn step(&self, phase: Phase, event: RecordEvent) -> Option<To> {
        match (self.flip == Some((phase, event)), table::step(phase, event)) {
            (false, to) => to,
            (true, Some(_)) => None,
            (true, None) => Some(usual(event)),
        }
    }

    fn allows(&self, world: &World, event: RecordEvent) -> bool {
        let phase = Phase::of(world.record.as_deref(), world.clocks.trusted());
        world.record.is_some() && self.step(phase, event).is_some()
    }

    fn dedups(&self) -> bool {
        matches!(self.recovery, Recovery::Redrive { .. })
    }
}

/// Where an event leads wherever it may happen.
fn usual(event: RecordEvent) -> To {
    match event {
        RecordEvent::Claim | RecordEvent::Renew | RecordEvent::Redrive => To::Running,
        RecordEvent::Settle | RecordEvent::SettleFor => To::Completed,
        RecordEvent::Release => To::Back,
        RecordEvent::MarkUnknown | RecordEvent::Reap => To::Unknown,
        RecordEvent::ReleaseFor => To::Released,
        RecordEvent::Forget | RecordEvent::Sweep => To::Absent,
    }
}

/// One step of one party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A client sends a request, or sends it again.
    Send(usize),
    /// The store call that a request waits for.
    Call(usize, Fate),
    /// The caller of a claim without an answer is told that the store is down.
    GiveUp(usize),
    /// A claimed request judges whether it may still send.
    Judge(usize),
    /// The service gets the request.
    Serve(usize, Served),
    /// An answer that the store does not take is given up for its memory.
    Forgo(usize),
    Renew(usize),
    Crash(usize),
    /// A late copy reaches the store.
    Arrive(usize),
    /// The reaper looks at the running record.
    Reap,
    Sweep,
    SettleFor,
    ReleaseFor,
    Forget,
    ShortTime,
    LongTime,
    /// Someone sets the store's clock forward, or back.
    Jump(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    /// Done, and the answer is lost.
    AnswerLost,
    /// Not done yet.
    Delayed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    Answered,
    /// Done, and the answer is lost.
    Silent,
    /// It never got there.
    NotSent,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.budget)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.wrong.is_some() {
            return;
        }
        for index in 0..REQUESTS {
            self.of_request(world, index, actions);
        }
        actions.extend((0..world.late.len()).map(Action::Arrive));
        self.of_background(world, actions);
        self.of_operators(world, actions);
        let budget = &world.budget;
        let of_time = [
            (budget.short > 0, Action::ShortTime),
            (budget.long > 0, Action::LongTime),
            (budget.jumps > 0 && world.clocks.offset_ms <= 0, Action::Jump(true)),
            (budget.jumps > 0 && world.clocks.offset_ms >= 0, Action::Jump(false)),
        ];
        actions.extend(of_time.into_iter().filter(|(may, _)| *may).map(|(_, action)| action));
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        self.act(&mut world, action);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("nothing goes wrong", |_: &Self, world: &World| world.wrong.is_none()),
            Property::always("what nobody owns is settled in the end", settles),
        ];
        if self.flip.is_none() {
            all.extend(reached(self.recovery));
        }
        all
    }
}

/// What a run must have met, or it has proved nothing.
pub(crate) fn reached(recovery: Recovery) -> Vec<Property<Protocol>> {
    let mut all: Vec<Property<Protocol>> = vec![
        Property::sometimes("a replay", |_: &Protocol, world: &World| told(world, |told| matches!(told, Told::Replay(_)))),
        Property::sometimes("a mismatch", |_: &Protocol, world: &World| told(world, |told| told == Told::Reused)),
        Property::sometimes("a fenced zombie", |_: &Protocol, world: &World| told(world, |told| told == Told::Fenced)),
        Property::sometimes("a reap while its owner is at work", |_: &Protocol, world: &World| {
            is_unknown(world) && world.requests.iter().any(|request| matches!(request, Request::Sending(_)))
        }),
        Property::sometimes("a release taken again", |_: &Protocol, world: &World| {
            world.requests.iter().any(|request| matches!(request, Request::Sending(owner) if owner.attempt > 1))
        }),
        Property::sometimes("a sweep", |_: &Protocol, world: &World| world.lives.iter().any(|life| life.end == Some(End::Swept))),
        Property::sometimes("a takeover of an expired record", |_: &Protocol, world: &World| {
            world.lives.iter().any(|life| life.end == Some(End::Taken))
        }),
        Property::sometimes("a claim that nobody waits for", |_: &Protocol, world: &World| {
            world.record.as_ref().is_some_and(|record| matches!(record.state, State::Running { .. }))
                && world.requests.iter().all(|request| matches!(request, Request::NotSent | Request::Told(_)))
        }),
        Property::sometimes("a record that a set clock calls expired, and nobody else", |_: &Protocol, world: &World| {
            world.record.as_ref().is_some_and(|record| {
                record.is_expired(world.clocks.store()) && !record.is_expired(world.clocks.trusted())
            })
        }),
    ];
    if !matches!(recovery, Recovery::Fail) {
        all.push(Property::sometimes("an unknown outcome told", |_: &Protocol, world: &World| {
            told(world, |told| told == Told::Unknown)
        }));
    }
    if matches!(recovery, Recovery::Redrive { .. }) {
        all.push(Property::sometimes("a redrive", |_: &Protocol, world: &World| {
            let mut requests = world.requests.iter();
            requests.any(|request| matches!(request, Request::Sending(owner) if matches!(owner.from, From::Unknown(_))))
        }));
    }
    all
}

fn told(world: &World, is_it: impl Fn(Told) -> bool) -> bool {
    world.requests.iter().any(|request| matches!(request, Request::Told(told) if is_it(*told)))
}

fn is_unknown(world: &World) -> bool {
    world.record.as_ref().is_some_and(|record| matches!(record.state, State::Unknown { .. }))
}

/// From here on nothing fails: then, after two leases, no record is left running.
fn settles(protocol: &Protocol, world: &World) -> bool {
    let is_left = world.record.as_ref().is_some_and(|record| matches!(record.state, State::Running { .. }));
    if !is_left || world.budget.short > 0 || protocol.flip.is_some() {
        return true;
    }
    let mut world = world.clone();
    for _ in 0..WAYS_MAX {
        let mut actions = Vec::new();
        for index in 0..REQUESTS {
            protocol.of_request(&world, index, &mut actions);
        }
        let forward = actions.into_iter().find(|action| {
            use Action::{Call, Judge, Serve};
            matches!(action, Call(_, Fate::Answered) | Judge(_) | Serve(_, Served::Answered))
        });
        let Some(action) = forward else { break };
        protocol.act(&mut world, action);
    }
    for _ in 0..3 {
        protocol.act(&mut world, Action::Reap);
        world.clocks.move_by(2 * SHORT_MS, 0);
    }
    !world.record.is_some_and(|record| matches!(record.state, State::Running { .. }))
}

/// More steps than three requests have.
const WAYS_MAX: usize = 30;

impl Protocol {
    fn of_request(&self, world: &World, index: usize, actions: &mut Vec<Action>) {
        let budget = &world.budget;
        let request = &world.requests[index];
        match request {
            Request::NotSent | Request::Told(_) | Request::Dead => {
                if budget.sent > 0 {
                    actions.push(Action::Send(index));
                }
                return;
            }
            Request::Claiming { is_unsure, .. } | Request::Taking { is_unsure, .. } => {
                of_call(world, index, actions);
                if *is_unsure {
                    actions.push(Action::GiveUp(index));
                }
            }
            Request::Claimed(_) => actions.push(Action::Judge(index)),
            Request::Sending(_) => {
                let all = [Served::Answered, Served::Silent, Served::NotSent];
                actions.extend(all.map(|served| Action::Serve(index, served)));
            }
            Request::Settling { is_unsure, event, .. } => {
                of_call(world, index, actions);
                if *is_unsure && event.0 == RecordEvent::Settle {
                    actions.push(Action::Forgo(index));
                }
            }
            Request::Disowned { .. } => actions.push(Action::Call(index, Fate::Answered)),
        }
        if owner_of(request).is_some_and(|owner| renews(world, owner)) {
            actions.push(Action::Renew(index));
        }
        if budget.crashes > 0 {
            actions.push(Action::Crash(index));
        }
    }

    fn of_background(&self, world: &World, actions: &mut Vec<Action>) {
        if self.allows(world, RecordEvent::Reap) {
            actions.push(Action::Reap);
        }
        if self.allows(world, RecordEvent::Sweep) {
            actions.push(Action::Sweep);
        }
    }

    fn of_operators(&self, world: &World, actions: &mut Vec<Action>) {
        if world.budget.operators == 0 {
            return;
        }
        let events = [
            (RecordEvent::SettleFor, Action::SettleFor),
            (RecordEvent::ReleaseFor, Action::ReleaseFor),
            (RecordEvent::Forget, Action::Forget),
        ];
        let allowed = events.into_iter().filter(|(event, _)| self.allows(world, *event));
        actions.extend(allowed.map(|(_, action)| action).filter(|action| {
            *action != Action::ReleaseFor || was_never_sent(world)
        }));
    }

    fn act(&self, world: &mut World, action: Action) {
        match action {
            Action::Send(index) => {
                world.budget.sent -= 1;
                let number = self.budget.sent - world.budget.sent;
                let not_after = world.clocks.store().plus_ms(NOT_AFTER_MS);
                world.requests[index] = Request::Claiming { token: number, not_after, is_unsure: false };
            }
            Action::Call(index, fate) => self.call(world, index, fate),
            Action::GiveUp(index) => give_up(world, index),
            Action::Judge(index) => judge(world, index),
            Action::Serve(index, served) => self.serve(world, index, served),
            Action::Forgo(index) => forgo(world, index),
            Action::Renew(_) => self.renew(world),
            Action::Crash(index) => {
                world.budget.crashes -= 1;
                world.requests[index] = Request::Dead;
            }
            Action::Arrive(index) => {
                let late = world.late.remove(index);
                self.arrive(world, &late);
            }
            Action::Reap => self.reap(world),
            Action::Sweep => self.sweep(world),
            Action::SettleFor => self.operate(world, RecordEvent::SettleFor),
            Action::ReleaseFor => self.operate(world, RecordEvent::ReleaseFor),
            Action::Forget => self.operate(world, RecordEvent::Forget),
            Action::ShortTime => {
                world.budget.short -= 1;
                world.clocks.move_by(SHORT_MS, 0);
            }
            Action::LongTime => {
                world.budget.long -= 1;
                world.clocks.move_by(LONG_MS, 0);
            }
            Action::Jump(forward) => {
                world.budget.jumps -= 1;
                world.clocks.move_by(0, if forward { JUMP_MS } else { -JUMP_MS });
            }
        }
    }

    fn call(&self, world: &mut World, index: usize, fate: Fate) {
        let request = world.requests[index].clone();
        if fate != Fate::Answered {
            world.budget.faults -= 1;
        }
        if fate == Fate::Delayed {
            world.late.extend(copy_of(&request, index));
            return unsure(&mut world.requests[index]);
        }
        // A repeated call waits behind its copy that may still be on its way.
        while let Some(at) = world.late.iter().position(|late| Some(late) == copy_of(&request, index).as_ref()) {
            let late = world.late.remove(at);
            self.arrive(world, &late);
        }
        let answered = match request {
            Request::Claiming { token, not_after, .. } => {
                let draft = draft(index, token, not_after);
                let seen = self.claim(world, &draft);
                if fate == Fate::Answered { Some(self.claimed(world, index, (token, draft), seen)) } else { None }
            }
            Request::Taking { token, write, event, .. } => {
                let is_done = self.swap(world, event.0, &write.0);
                (fate == Fate::Answered).then(|| taken(world, token, &write.0, is_done))
            }
            Request::Settling { owner, write, event, answer, .. } => {
                let is_done = self.swap(world, event.0, &write.0);
                (fate == Fate::Answered).then(|| settled(world, index, owner, answer, is_done))
            }
            Request::Disowned { token: number, from, not_after } => {
                let write = Write::release(token(number), from.taken_from());
                self.swap(world, RecordEvent::Release, &write);
                (world.clocks.store() > not_after).then_some(Request::Told(Told::StoreDown))
            }
            _ => None,
        };
        match answered {
            Some(next) => world.requests[index] = next,
            None => unsure(&mut world.requests[index]),
        }
    }

    /// What the engine makes of the record that a claim has shown.
    fn claimed(
        &self,
        world: &mut World,
        index: usize,
        (number, draft): (u8, onlyonce::store::Draft),
        seen: Seen,
    ) -> Request {
        let decision = decide(&seen, Question { draft: &draft, recovery: self.recovery });
        let phase = Phase::of(seen.record.as_ref(), seen.now);
        if let (Some(record), false) = (&seen.record, seen.mine)
            && record.token != draft.token
        {
            let takes = matches!(&decision, Decision::Take(write) if !is_redrive(write));
            let may_take = self.step(phase, RecordEvent::Claim).is_some();
            if takes && !may_take {
                world.go_wrong(Wrong::NotInTheTable);
            } else if may_take && !takes {
                let write = Write::take(record, phase == Phase::Expired, draft);
                return take(number, write, RecordEvent::Claim);
            }
            let redrives = matches!(&decision, Decision::Take(write) if is_redrive(write));
            if redrives && self.step(phase, RecordEvent::Redrive).is_none() {
                world.go_wrong(Wrong::NotInTheTable);
            }
        }
        match decision {
            Decision::Execute { attempt, taken_from } => {
                Request::Claimed(owner(world, number, attempt, From::of(taken_from)))
            }
            Decision::Take(write) => {
                let event = if is_redrive(&write) { RecordEvent::Redrive } else { RecordEvent::Claim };
                take(number, *write, event)
            }
            Decision::Replay(response) => replay(world, index, answer_of(&response)),
            Decision::Reused => Request::Told(Told::Reused),
            Decision::Unknown { .. } => Request::Told(Told::Unknown),
            Decision::Fail(_) => self.settle_and_look(world, index, SettledBy::Policy, BY_POLICY),
            Decision::Reconcile { .. } if world.lives[world.life].effects > 0 => {
                self.settle_and_look(world, index, SettledBy::Reconcile, BY_RECONCILE)
            }
            Decision::Reconcile { .. } => Request::Told(Told::Unknown),
            Decision::InProgress | Decision::GiveUp | Decision::Release(_) => Request::Told(Told::InProgress),
        }
    }

    /// Somebody who is not the owner settles an unknown outcome; the request is answered by it.
    fn settle_and_look(&self, world: &mut World, index: usize, by: SettledBy, answer: u8) -> Request {
        let write = world.record.as_deref().and_then(|record| Write::settle_for(record, by, response(answer)));
        if let Some(write) = write {
            self.swap(world, RecordEvent::SettleFor, &as_stranger(write));
        }
        by_record(world, index).unwrap_or(Request::Told(Told::InProgress))
    }

    fn serve(&self, world: &mut World, index: usize, served: Served) {
        let Request::Sending(owner) = world.requests[index] else { return };
        if served == Served::NotSent {
            let write = Write::release(owner.token(), owner.from.taken_from());
            world.requests[index] = owner.settle(write, RecordEvent::Release, None);
            return;
        }
        let answer = world.execute(owner.life, owner.token, self.dedups());
        world.requests[index] = match (served, self.recovery) {
            (Served::Answered, _) => {
                owner.settle(Write::settle(owner.token(), response(answer)), RecordEvent::Settle, Some(answer))
            }
            (_, Recovery::Fail) => {
                let write = Write::settle_by_policy(owner.token(), response(BY_POLICY));
                owner.settle(write, RecordEvent::Settle, Some(BY_POLICY))
            }
            _ => owner.settle(Write::mark_unknown(owner.token()), RecordEvent::MarkUnknown, None),
        };
    }

    /// The reaper remembers what it sees, and reaps what it has seen unchanged for a lease.
    fn reap(&self, world: &mut World) {
        let Some(record) = world.record.clone() else { return };
        let revision = record.revision();
        if !matches!(record.state, State::Running { .. }) {
            self.swap(world, RecordEvent::Reap, &Write::reap(revision));
            return;
        }
        match world.sight {
            Some((seen, at)) if seen == revision => {
                let boot = world.clocks.boot();
                let since = Duration::from_millis(at.unsigned_abs());
                if let Some(write) = lapsed(&record, since, boot, world) {
                    self.swap(world, RecordEvent::Reap, &write);
                }
            }
            _ => world.sight = Some((revision, world.clocks.boot_ms)),
        }
    }

    fn operate(&self, world: &mut World, event: RecordEvent) {
        world.budget.operators -= 1;
        let Some(record) = world.record.clone() else { return };
        let answered = Next::Completed {
            settled_by: SettledBy::Operator,
            response: response(BY_OPERATOR),
            token: Some(token(STRANGER)),
        };
        let (write, next) = match event {
            RecordEvent::SettleFor => {
                (Write::settle_for(&record, SettledBy::Operator, response(BY_OPERATOR)).map(as_stranger), answered)
            }
            RecordEvent::ReleaseFor => {
                (Write::release_for(&record, world.clocks.trusted(), true), Next::Released { expires_at: None })
            }
            _ => (Write::forget(&record), Next::Absent),
        };
        // Where a flipped cell allows what the engine refuses, it is done all the same.
        let raw = || Write { guard: Guard::Unchanged(record.revision()), next, about: None };
        self.swap(world, event, &write.unwrap_or_else(raw));
    }
}

fn of_call(world: &World, index: usize, actions: &mut Vec<Action>) {
    actions.push(Action::Call(index, Fate::Answered));
    if world.budget.faults > 0 {
        actions.push(Action::Call(index, Fate::AnswerLost));
        actions.push(Action::Call(index, Fate::Delayed));
    }
}

fn owner_of(request: &Request) -> Option<&Owner> {
    match request {
        Request::Claimed(owner) | Request::Sending(owner) | Request::Settling { owner, .. } => Some(owner),
        _ => None,
    }
}

/// Whether the record is this owner's, and time has passed since its last renewal.
fn renews(world: &World, owner: &Owner) -> bool {
    let lease_until = world.clocks.store().plus_ms(LEASE_MS);
    world.record.as_ref().is_some_and(|record| {
        record.token == owner.token() && record.state != State::Running { lease_until }
    })
}

/// Truly vouched for: the work was not done, and nobody is left who could do it.
fn was_never_sent(world: &World) -> bool {
    let owner = world.record.as_ref().map(|record| record.token);
    let may_send = |request: &Request| match request {
        Request::Claimed(held) | Request::Sending(held) => Some(held.token()) == owner,
        Request::Claiming { token: number, .. } | Request::Taking { token: number, .. } => Some(token(*number)) == owner,
        _ => false,
    };
    world.lives[world.life].effects == 0 && !world.requests.iter().any(may_send)
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

fn unsure(request: &mut Request) {
    if let Request::Claiming { is_unsure, .. } | Request::Taking { is_unsure, .. } | Request::Settling { is_unsure, .. } =
        request
    {
        *is_unsure = true;
    }
}

fn give_up(world: &mut World, index: usize) {
    let (token, from, not_after) = match &world.requests[index] {
        Request::Claiming { token, not_after, .. } => (*token, From::Nothing, *not_after),
        Request::Taking { token, write, .. } => {
            let Next::Running(takeover) = &write.0.next else { return };
            (*token, From::of(takeover.taken_from), takeover.draft.not_after)
        }
        _ => return,
    };
    world.requests[index] = Request::Disowned { token, from, not_after };
}

/// Enough of the lease must be left, else nothing is sent.
fn judge(world: &mut World, index: usize) {
    let Request::Claimed(owner) = world.requests[index] else { return };
    let has_margin = world.clocks.boot_ms - owner.claimed_at <= LEASE_MS - LEASE_MS / 4;
    world.requests[index] = if has_margin {
        Request::Sending(owner)
    } else {
        let write = Write::release(owner.token(), owner.from.taken_from());
        owner.settle(write, RecordEvent::Release, None)
    };
}

fn forgo(world: &mut World, index: usize) {
    let Request::Settling { owner, .. } = world.requests[index] else { return };
    world.requests[index] = owner.settle(Write::mark_unknown(owner.token()), RecordEvent::MarkUnknown, None);
}

fn take(token: u8, write: Write, event: RecordEvent) -> Request {
    Request::Taking { token, write: Asked(write), event: Event(event), is_unsure: false }
}

fn taken(world: &World, number: u8, write: &Write, is_done: bool) -> Request {
    match &write.next {
        Next::Running(takeover) if is_done => {
            Request::Claimed(owner(world, number, takeover.attempt, From::of(takeover.taken_from)))
        }
        _ if world.record.as_ref().is_some_and(|record| record.token == token(number)) => {
            give_up_of(number, write)
        }
        _ => Request::Told(Told::InProgress),
    }
}

/// An earlier copy took the record, and its lease lapsed before the answer came: nothing was sent, so it is released.
fn give_up_of(number: u8, write: &Write) -> Request {
    match &write.next {
        Next::Running(takeover) => Request::Disowned {
            token: number,
            from: From::of(takeover.taken_from),
            not_after: takeover.draft.not_after,
        },
        _ => Request::Told(Told::InProgress),
    }
}

fn owner(world: &World, token: u8, attempt: u32, from: From) -> Owner {
    Owner { token, attempt, from, claimed_at: world.clocks.boot_ms, life: world.life }
}

/// The owner's last write was answered.
fn settled(world: &mut World, index: usize, owner: Owner, answer: Option<u8>, is_done: bool) -> Request {
    match (is_done, answer) {
        (true, Some(answer)) => {
            world.tell(owner.life, answer);
            Request::Told(Told::Fresh(answer))
        }
        (true, None) => Request::Told(Told::NotDone),
        // A fenced owner answers from the record, never with its own answer.
        (false, _) => match by_record(world, index) {
            Some(Request::Told(Told::Replay(_))) | None => Request::Told(Told::Fenced),
            Some(other) => other,
        },
    }
}

/// The answer that the record has for this request; `None` if the key is free.
fn by_record(world: &mut World, index: usize) -> Option<Request> {
    let Seen { record, now, .. } = seen(world);
    let record: Record = record.filter(|record| !record.is_expired(now))?;
    match &record.state {
        State::Released { .. } => None,
        _ if !record.fingerprint.matches(&fingerprint(index)) => Some(Request::Told(Told::Reused)),
        State::Completed { response, .. } => Some(replay(world, index, answer_of(response))),
        State::Unknown { .. } => Some(Request::Told(Told::Unknown)),
        State::Running { .. } => Some(Request::Told(Told::InProgress)),
    }
}

fn replay(world: &mut World, index: usize, answer: u8) -> Request {
    let is_same = world.record.as_ref().is_some_and(|record| record.fingerprint.matches(&fingerprint(index)));
    if !is_same {
        world.go_wrong(Wrong::AnswerToAnotherRequest);
    }
    world.tell(world.life, answer);
    Request::Told(Told::Replay(answer))
}

fn is_redrive(write: &Write) -> bool {
    matches!(&write.next, Next::Running(takeover) if matches!(takeover.taken_from, Some(TakenFrom::Unknown { .. })))
}

/// The same write with a token that is not random, so that equal states are equal.
fn as_stranger(write: Write) -> Write {
    match write.next {
        Next::Completed { settled_by, response, .. } => {
            Write { next: Next::Completed { settled_by, response, token: Some(token(STRANGER)) }, ..write }
        }
        _ => write,
    }
}

/// The engine's own judgement, of a reaper that first saw this revision at `since`.
fn lapsed(record: &Record, since: Duration, boot: Duration, world: &World) -> Option<Write> {
    let mut lapses = Lapses::default();
    let id = OperationId::from_bytes([1; 16]);
    lapses.begin();
    lapses.judge(id, record, world.clocks.store(), since);
    lapses.judge(id, record, world.clocks.store(), boot)
}

const NOT_AFTER_MS: i64 = 10_000;
