//! The loop: one operation from its first attempt to its outcome. Everything that decides is elsewhere, and pure.

use std::time::Duration;

use http::StatusCode;

use super::answer::Answer;
use super::connect::AttemptTime;
use super::decide::{Course, End, Moment, Next, decide, gave_up};
use super::diary::Diary;
use super::event::Event;
use super::operation::Operation;
use super::outcome::{Doubt, SendError, SendOutcome, Stop};
use super::reading::{self, Meaning};
use super::redirect::{self, Redirect};
use super::retries::Retries;
use super::transport::{Reach, Transport, TransportError};
use super::well_known::{self, State, Window};
use crate::clock::StoreTime;
use crate::code::Retry;
use crate::key::Key;

/// One operation that is being sent.
pub(crate) struct Run<'a> {
    pub(crate) retries: &'a Retries,
    pub(crate) diary: Diary,
    /// Whether the server may be asked about itself and about the operation.
    pub(crate) asks: bool,
    /// Whether an earlier process began the operation.
    pub(crate) is_resumed: bool,
}

/// The answer of an attempt, or why there is none.
type Heard = Result<Answer, TransportError>;

impl Run<'_> {
    /// Sends the operation until there is an outcome, or until it is certain that there will be none.
    pub(crate) async fn perform<T: Transport>(
        &self,
        transport: &mut T,
        mut operation: Operation,
        mut course: Course,
    ) -> Result<SendOutcome, SendError> {
        let mut sending = operation.clone();
        let deadline = self.deadline(&course);
        loop {
            let heard = match self.judged_anew(transport, &operation, &mut course).await {
                Some(Stop::Window) => {
                    let end = gave_up(&course, Stop::Window);
                    let never = Err(TransportError::new(Reach::NotSent, "it was not sent again"));
                    return self.end(transport, operation, course, never, end).await;
                }
                Some(_) => Err(self.not_sent(&course)),
                None => {
                    if let Err(failure) = self.note(&sending, &course).await {
                        let end = gave_up(&course, Stop::Journal);
                        return self.end(transport, operation, course, Err(failure), end).await;
                    }
                    self.attempt(transport, &sending, &course, deadline).await
                }
            };
            match self.redirected(&heard, &sending, &course) {
                Some(Ok(followed)) => {
                    (sending, course) = followed;
                    // Questions about the operation go to where it was last sent, not to where its result is read.
                    if sending.key.is_some() {
                        operation = sending.clone();
                    }
                    continue;
                }
                Some(Err(end)) => return self.end(transport, operation, course, heard, end).await,
                None => {}
            }
            let meaning = reading::read(&heard, self.retries.environment.wall());
            self.pay(&meaning);
            course = course.after(&meaning);
            if matches!(meaning, Meaning::Again(_)) {
                course = self.learn_window(transport, &operation, course).await;
            }
            let moment = self.moment(&course);
            match decide(&meaning, &course, &self.retries.settings, &moment) {
                Next::Wait(wait) => self.wait(wait).await,
                Next::End(end) => return self.end(transport, operation, course, heard, end).await,
            }
        }
    }

    /// Why an operation is not sent now that this run has tried for so long that a server may have forgotten it: see
    /// [`bar`](Self::bar).
    async fn judged_anew<T: Transport>(
        &self,
        transport: &mut T,
        operation: &Operation,
        course: &mut Course,
    ) -> Option<Stop> {
        let age_ms = self.retries.environment.wall().since_ms(course.first_sent);
        match Duration::from_millis(age_ms.unsigned_abs()) >= WINDOW_LEAST && course.done.is_none()
        {
            true => self.bar(transport, operation, course).await,
            false => None,
        }
    }

    /// The failure that stands for an attempt which was not made; the service may be back before the next one.
    fn not_sent(&self, course: &Course) -> TransportError {
        let failure =
            TransportError::new(Reach::NotSent, "the service does not say how long it keeps keys");
        let number = course.sends.saturating_add(1);
        self.retries.tell(&Event::Failed { number, failure: &failure });
        failure
    }

    /// Why an operation that may have been executed is not sent now, if it is not: the server may have
    /// forgotten it, or cannot say for how long it remembers.
    pub(crate) async fn bar<T: Transport>(
        &self,
        transport: &mut T,
        operation: &Operation,
        course: &mut Course,
    ) -> Option<Stop> {
        // If no earlier attempt may have been executed, nothing can be executed twice.
        course.doubt?;
        let window = match self.window(transport, operation, course).await {
            Window::Told(window) => *course.window.insert(window),
            Window::Usual => WINDOW_USUAL,
            Window::NoAnswer => return Some(Stop::WindowUnknown),
        };
        let (now, settings) = (self.retries.environment.wall(), &self.retries.settings);
        let is_past = super::decide::is_past_window(course.first_sent, now, window, settings);
        is_past.then_some(Stop::Window)
    }

    /// Ends an operation that must not be sent again: with what the server knows about it, if the server tells.
    #[cfg(feature = "client-journal")]
    pub(crate) async fn without_sending<T: Transport>(
        &self,
        transport: &mut T,
        operation: &Operation,
        course: &Course,
        stop: Stop,
    ) -> Result<SendOutcome, SendError> {
        let state = match stop {
            // The server has just been asked and did not answer; or its record is of another request.
            Stop::WindowUnknown | Stop::KeyReused => None,
            _ => well_known::look_up(self.retries, transport, operation).await,
        };
        let end = match state {
            Some(State::Completed(status)) => End::Done(status),
            Some(State::Running) => End::Unknown(Doubt::InProgress, stop),
            Some(State::Unknown) => End::Unknown(Doubt::HeldUnknown, stop),
            None => gave_up(course, stop),
        };
        let never = Err(TransportError::new(Reach::NotSent, "it was not sent again"));
        concluded(end, never, operation, course).map(|outcome| looked_up(outcome, stop))
    }

    /// Notes the attempt in the journal. An attempt that cannot be noted must not be sent: a later process would not
    /// know of it.
    async fn note(&self, sending: &Operation, course: &Course) -> Result<(), TransportError> {
        let number = course.sends.saturating_add(1);
        // Reading a result is no attempt.
        if sending.key.is_none() {
            return Ok(());
        }
        let noted = self.diary.note_attempt(number, sending, course.window).await;
        if let Err(failure) = &noted {
            self.retries.tell(&Event::Failed { number, failure });
        }
        noted
    }

    async fn attempt<T: Transport>(
        &self,
        transport: &mut T,
        sending: &Operation,
        course: &Course,
        deadline: StoreTime,
    ) -> Heard {
        let number = course.sends.saturating_add(1);
        if let Some(key) = &sending.key {
            self.retries.tell(&Event::Attempt { key, number });
        }
        let settings = &self.retries.settings;
        let left = course.ends_at.saturating_sub(self.retries.environment.boot());
        let time = settings.attempt_timeout.min(left);
        let mut request = sending.request(settings, number, deadline);
        request.extensions_mut().insert(AttemptTime(time));
        let heard = tokio::select! {
            biased;
            heard = transport.send(request, settings.answer_bytes_max) => heard,
            () = self.retries.environment.sleep(time) => {
                Err(TransportError::new(Reach::MaybeSent, "the attempt timed out"))
            }
        };
        self.retries.tell(&match &heard {
            Ok(answer) => Event::Answered { number, answer },
            Err(failure) => Event::Failed { number, failure },
        });
        heard
    }

    /// The deadline by the wall clock, for `X-Request-Deadline`.
    fn deadline(&self, course: &Course) -> StoreTime {
        let environment = &self.retries.environment;
        environment.wall().plus(course.ends_at.saturating_sub(environment.boot()))
    }

    fn redirected(
        &self,
        heard: &Heard,
        sending: &Operation,
        course: &Course,
    ) -> Option<Result<(Operation, Course), End>> {
        let answer = heard.as_ref().ok()?;
        let redirect = redirect::read(answer, &sending.uri)?;
        if let Some(end) = redirect::unfollowed(&redirect, answer.is_replay(), course) {
            return Some(Err(end));
        }
        let redirects = course.redirects + 1;
        let sends = course.sends + 1;
        let is_replay = course.is_replay || answer.is_replay();
        // Another path may belong to another route, with another time to live for keys.
        let window = self.retries.settings.window;
        let course = Course { redirects, sends, is_replay, window, ..*course };
        let (next, course) = match redirect {
            Redirect::SeeOther(to) => {
                let course = Course { done: Some(answer.status), ..course };
                (sending.clone().result_at(to), course)
            }
            Redirect::Moved(to) => (sending.clone().moved(to), course),
            Redirect::Elsewhere | Redirect::Unclear => return None,
        };
        if redirects > REDIRECTS_MAX {
            return Some(Err(course
                .done
                .map_or_else(|| gave_up(&course, Stop::Redirects), End::Done)));
        }
        self.retries.tell(&Event::Redirected { to: &next.uri });
        Some(Ok((next, course)))
    }

    /// Notes the attempt in the retry budget. An answer that asks to come again later is no failure.
    fn pay(&self, meaning: &Meaning) {
        let now = self.retries.environment.boot();
        match meaning {
            Meaning::Again(again) if !again.is_question() => self.retries.budget.note_failure(now),
            Meaning::Again(_) => {}
            _ if self.is_resumed => {}
            _ => self.retries.budget.note_success(now),
        }
    }

    async fn window<T: Transport>(
        &self,
        transport: &mut T,
        operation: &Operation,
        course: &Course,
    ) -> Window {
        match course.window {
            Some(window) => Window::Told(window),
            None if self.asks => well_known::window(self.retries, transport, operation).await,
            None => Window::Usual,
        }
    }

    /// Asks the server how long it keeps keys, and notes the answer in the journal for later processes.
    async fn learn_window<T: Transport>(
        &self,
        transport: &mut T,
        operation: &Operation,
        course: Course,
    ) -> Course {
        let window = match self.window(transport, operation, &course).await {
            Window::Told(window) => window,
            // The first attempt was a moment ago, so the key is not forgotten yet. The server is asked again before a later
            // attempt.
            Window::Usual | Window::NoAnswer => return course,
        };
        if course.window.is_none() {
            self.diary.note_window(window).await;
        }
        Course { window: Some(window), ..course }
    }

    fn moment(&self, course: &Course) -> Moment {
        let environment = &self.retries.environment;
        Moment {
            wall: environment.wall(),
            boot: environment.boot(),
            budget_allows: self.retries.budget.allows_retry(environment.boot()),
            random: environment.random(),
            window: course.window.unwrap_or(WINDOW_USUAL),
        }
    }

    async fn wait(&self, wait: Duration) {
        self.retries.tell(&Event::Waiting { wait });
        self.retries.environment.sleep(wait).await;
    }

    /// Looks an unknown outcome up before the caller is told that it is unknown.
    async fn end<T: Transport>(
        &self,
        transport: &mut T,
        operation: Operation,
        course: Course,
        heard: Heard,
        end: End,
    ) -> Result<SendOutcome, SendError> {
        // If no earlier attempt is in doubt, the redirect is the server's record of the operation.
        if let End::Unknown(doubt, stop) = end
            && self.asks
            && doubt != Doubt::Redirected
            && may_be_known(stop)
            && let Some(State::Completed(status)) =
                well_known::look_up(self.retries, transport, &operation).await
        {
            let outcome = concluded(End::Done(status), heard, &operation, &course);
            return outcome.map(|outcome| looked_up(outcome, stop));
        }
        concluded(end, heard, &operation, &course)
    }
}

/// Whether the server may know more than the last attempt said.
fn may_be_known(stop: Stop) -> bool {
    matches!(
        stop,
        Stop::Attempts | Stop::Window | Stop::Refused | Stop::NotFollowed | Stop::Journal
    )
}

/// The outcome, or the error, that the caller gets.
fn concluded(
    end: End,
    heard: Heard,
    operation: &Operation,
    course: &Course,
) -> Result<SendOutcome, SendError> {
    let key = || operation.key.clone().unwrap_or_else(Key::random);
    match (end, heard) {
        (End::Success, Ok(answer)) => Ok(match course.is_replay || answer.is_replay() {
            true => SendOutcome::Replayed(answer),
            false => SendOutcome::Fresh(answer),
        }),
        (End::Done(status), heard) => Ok(on_record(status, heard, key())),
        (End::Rejected, Ok(answer)) => Ok(rejected(answer)),
        (End::Rejected, Err(failure)) => Err(SendError::Request(failure.source.to_string())),
        (End::Unknown(doubt, stop), heard) => {
            Ok(SendOutcome::Unknown { key: key(), doubt, stop, last: heard.ok() })
        }
        (End::NotThrough(stop), heard) => {
            let (last, source) = match heard {
                Ok(answer) => (Some(Box::new(answer)), None),
                Err(failure) => (None, Some(failure)),
            };
            Err(SendError::NotThrough { key: key(), stop, last, source })
        }
        (End::Success, Err(_)) => {
            let (doubt, stop) = (Doubt::NoAnswer, Stop::Closed);
            Ok(SendOutcome::Unknown { key: key(), doubt, stop, last: None })
        }
    }
}

/// An outcome that the server told when it was asked, after the attempts had ended for this reason. Where the
/// key may soon be forgotten, or the answer is known to be none, the operation is not to be sent again.
fn looked_up(outcome: SendOutcome, stop: Stop) -> SendOutcome {
    match outcome {
        SendOutcome::Done { original_status, .. } => {
            let may_be_replayed = !matches!(stop, Stop::Window | Stop::Closed);
            SendOutcome::Done { original_status, may_be_replayed }
        }
        outcome => outcome,
    }
}

/// The outcome of an operation of which the server still has the status, and no longer the answer.
fn on_record(status: StatusCode, heard: Heard, key: Key) -> SendOutcome {
    let last = heard.ok();
    let doubt = match status {
        _ if status.is_success() || status == StatusCode::SEE_OTHER => {
            return SendOutcome::Done { original_status: status, may_be_replayed: false };
        }
        _ if status.is_client_error() || reading::is_unsupported(status) => {
            // A problem of ours with this status is another answer than the one on record.
            let same = last.filter(|answer| answer.status == status && !reading::is_ours(answer));
            let answer = same.unwrap_or_else(|| Answer::new(status));
            return SendOutcome::Rejected { answer, elsewhere: None, retry: Retry::NewKey };
        }
        _ if status.is_redirection() => Doubt::Redirected,
        _ => Doubt::ServerError,
    };
    SendOutcome::Unknown { key, doubt, stop: Stop::Closed, last }
}

fn rejected(answer: Answer) -> SendOutcome {
    let elsewhere = match answer.status.is_redirection() {
        true => answer.header(&http::header::LOCATION).map(str::to_owned),
        false => None,
    };
    // To another origin, the same request is another operation.
    let retry = match elsewhere {
        Some(_) => Retry::Never,
        None => reading::advice(&answer),
    };
    SendOutcome::Rejected { answer, elsewhere, retry }
}

const REDIRECTS_MAX: u32 = 5;
const WINDOW_USUAL: Duration = well_known::WINDOW_USUAL;
/// The shortest time for which any service keeps keys.
const WINDOW_LEAST: Duration = Duration::from_secs(60);
