//! What may happen next, and what becomes of it.

use onlyonce::engine::table::{self, Phase, RecordEvent, To};
use onlyonce::policy::Recovery;
use stateright::{Model, Property};

use crate::clocks::{JUMP_MS, LONG_MS, SHORT_MS};
use crate::promises::ends_well;
use crate::reached::reached;
use crate::request::Request;
use crate::world::{Budget, REQUESTS, World};

/// A route with its recovery, and how much may happen.
#[derive(Clone)]
pub(crate) struct Protocol {
    pub(crate) recovery: Recovery,
    pub(crate) budget: Budget,
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

    /// Whether the flipped cell, and not the engine's table, lets this happen.
    pub(crate) fn is_wrongly_allowed(&self, phase: Phase, event: RecordEvent) -> bool {
        self.step(phase, event).is_some() && table::step(phase, event).is_none()
    }

    /// Whether the record, as a node sees it now, may meet this event.
    pub(crate) fn allows(&self, world: &World, event: RecordEvent) -> bool {
        let phase = Phase::of(world.record.as_deref(), world.clocks.trusted());
        world.record.is_some() && self.step(phase, event).is_some()
    }

    pub(crate) fn dedups(&self) -> bool {
        matches!(self.recovery, Recovery::Redrive { .. })
    }
}

/// Where an event leads wherever it may happen.
fn usual(event: RecordEvent) -> To {
    match event {
        RecordEvent::Claim | RecordEvent::Renew | RecordEvent::Redrive => To::Running,
        RecordEvent::Settle | RecordEvent::SettleFor | RecordEvent::Erase => To::Completed,
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
    /// The same, and the node that gets it answers from its memory.
    Hit(usize),
    /// The store call that a request waits for.
    Call(usize, Fate),
    /// The caller of a claim without an answer is told that the store is down.
    GiveUp(usize),
    /// A caller that waits for another request looks at the record.
    Look(usize),
    /// A claimed request judges whether it may still send.
    Judge(usize),
    /// The service gets the request.
    Serve(usize, Served),
    /// The deadline of the caller passes, and the work goes on.
    Overdue(usize),
    /// The store refuses an answer for its content.
    Refuse(usize),
    /// An answer that the store does not take is given up for its memory.
    Forgo(usize),
    Renew(usize),
    Crash(usize),
    /// A late copy reaches the store.
    Arrive(usize),
    /// The reaper looks at the running record.
    Reap(Pace),
    Sweep,
    /// An operator settles, releases or forgets.
    Operate(RecordEvent, Pace),
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

/// When the write of somebody who has judged the record reaches the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    AtOnce,
    Later,
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
        of_time(world, actions);
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        self.act(&mut world, action);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("nothing goes wrong", |_: &Self, world: &World| world.wrong.is_none()),
            Property::always("everything can be brought to its end", ends_well),
        ];
        if self.flip.is_none() {
            all.extend(reached(self.recovery));
        }
        all
    }
}

impl Protocol {
    pub(crate) fn act(&self, world: &mut World, action: Action) {
        match action {
            Action::Send(index) => self.send(world, index),
            Action::Hit(index) => hit(world, index),
            Action::Call(index, fate) => self.call(world, index, fate),
            Action::GiveUp(index) => crate::claiming::give_up(world, index),
            Action::Look(index) => crate::settling::look(world, index),
            Action::Judge(index) => crate::settling::judge(world, index),
            Action::Serve(index, served) => self.serve(world, index, served),
            Action::Overdue(index) => self.overdue(world, index),
            Action::Refuse(index) => crate::settling::refuse(world, index),
            Action::Forgo(index) => crate::settling::forgo(world, index),
            Action::Renew(index) => self.renew(world, index),
            Action::Crash(index) => {
                world.budget.crashes -= 1;
                world.requests[index] = Request::Dead;
            }
            Action::Arrive(index) => {
                let late = world.late.remove(index);
                self.arrive(world, &late);
            }
            Action::Reap(pace) => self.reap(world, pace),
            Action::Sweep => self.sweep(world),
            Action::Operate(event, pace) => self.operate(world, event, pace),
            Action::ShortTime | Action::LongTime | Action::Jump(_) => pass(world, action),
        }
    }
}

fn of_time(world: &World, actions: &mut Vec<Action>) {
    let budget = &world.budget;
    let all = [
        (budget.short > 0, Action::ShortTime),
        (budget.long > 0, Action::LongTime),
        (budget.jumps > 0 && world.clocks.offset_ms <= 0, Action::Jump(true)),
        (budget.jumps > 0 && world.clocks.offset_ms >= 0, Action::Jump(false)),
    ];
    actions.extend(all.into_iter().filter(|(may, _)| *may).map(|(_, action)| action));
}

fn pass(world: &mut World, action: Action) {
    let (left, boot_ms, offset_ms) = match action {
        Action::ShortTime => (&mut world.budget.short, SHORT_MS, 0),
        Action::LongTime => (&mut world.budget.long, LONG_MS, 0),
        Action::Jump(true) => (&mut world.budget.jumps, 0, JUMP_MS),
        _ => (&mut world.budget.jumps, 0, -JUMP_MS),
    };
    *left -= 1;
    world.clocks.move_by(boot_ms, offset_ms);
}

fn hit(world: &mut World, index: usize) {
    world.budget.sent -= 1;
    if let Some(copy) = world.copy {
        world.requests[index] = crate::settling::by_copy(world, index, copy);
    }
}
