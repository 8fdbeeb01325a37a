//! One request, or many at one instant.

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::Hunt;
use crate::torture::observed::Event;
use crate::torture::plan::{Cut, Over, Shot, Trial};
use crate::torture::wire::{self, Fault, Outcome, Stream, h2};

impl Hunt {
    /// Sends, and waits for what becomes of it.
    pub(super) async fn fly(&self, trial: &Trial, shot: &Shot) -> Event {
        let from = self.epoch.elapsed();
        let rendered = self.target.render(trial, shot);
        let node = shot.node % self.http1.len();
        let method = &self.target.method;
        let outcome = match shot.over {
            Over::Http1 => {
                let bytes = rendered.bytes(method);
                let fault = self.fault(shot.cut, bytes.len());
                wire::exchange(&self.http1[node], &bytes, fault, self.limits.patience).await
            }
            Over::Http2 => {
                let fault = self.fault(shot.cut, rendered.body.len());
                let connector = &self.http2[node];
                h2::exchange(connector, method, &rendered, fault, self.limits.patience).await
            }
        };
        Event { from, until: self.epoch.elapsed(), shot: shot.clone(), outcome }
    }

    /// All requests at one instant.
    pub(super) async fn burst(&mut self, trial: &Trial, shots: &[Shot]) -> Vec<Event> {
        self.counts.sent += shots.len();
        match shots.first().map(|shot| shot.over) {
            Some(Over::Http2) => self.burst_in_one_packet(trial, shots).await,
            _ => self.burst_by_last_byte(trial, shots).await,
        }
    }

    async fn burst_by_last_byte(&self, trial: &Trial, shots: &[Shot]) -> Vec<Event> {
        let patience = self.limits.patience;
        let opening = shots.iter().map(|shot| async move {
            timeout(patience, self.all_but_the_last_byte(trial, shot)).await?
        });
        let opening = stream::iter(opening.collect::<Vec<_>>());
        let mut opened: Vec<_> = opening.buffered(OPENING_MAX).collect().await;
        let from = self.epoch.elapsed();
        let writing = async {
            for (stream, last) in opened.iter_mut().filter_map(|opened| opened.as_mut().ok()) {
                // Whoever cannot be written to has no answer either.
                let _ = stream.write_all(last).await;
                let _ = stream.flush().await;
            }
        };
        let _ = timeout(patience, writing).await;
        let reading = opened.into_iter().zip(shots).map(|(opened, shot)| async move {
            let outcome = match opened {
                Ok((mut stream, _)) => {
                    let reading = wire::received(&mut stream, Fault::None);
                    timeout(patience, reading).await.unwrap_or(Outcome::TimedOut)
                }
                Err(error) => Outcome::NotConnected(error.to_string()),
            };
            Event { from, until: self.epoch.elapsed(), shot: shot.clone(), outcome }
        });
        join_all(reading).await
    }

    async fn all_but_the_last_byte(
        &self,
        trial: &Trial,
        shot: &Shot,
    ) -> std::io::Result<(Stream, Vec<u8>)> {
        let mut bytes = self.target.render(trial, shot).bytes(&self.target.method);
        let last = bytes.split_off(bytes.len() - 1);
        let mut stream = self.http1[shot.node % self.http1.len()].connect().await?;
        stream.write_all(&bytes).await?;
        stream.flush().await?;
        Ok((stream, last))
    }

    async fn burst_in_one_packet(&self, trial: &Trial, shots: &[Shot]) -> Vec<Event> {
        let rendered: Vec<_> =
            shots.iter().map(|shot| self.target.render(trial, &shot.clone().at(0))).collect();
        let from = self.epoch.elapsed();
        let (connector, method) = (&self.http2[0], &self.target.method);
        let outcomes = h2::burst(connector, method, &rendered, self.limits.patience).await;
        let until = self.epoch.elapsed();
        let events = shots.iter().zip(outcomes);
        events
            .map(|(shot, outcome)| Event { from, until, shot: shot.clone().at(0), outcome })
            .collect()
    }

    /// The place in bytes and time.
    fn fault(&self, cut: Cut, bytes: usize) -> Fault {
        let of = |part: u32, whole: usize| whole * part as usize / 1000;
        match cut {
            Cut::Whole => Fault::None,
            Cut::Request(end, part) => {
                Fault::RequestByte(end, of(part, bytes).clamp(1, bytes.max(2) - 1))
            }
            Cut::Response(end, part) => {
                let whole = self.answer_bytes;
                let byte = of(part, whole).max(usize::from(part > 0)).min(whole - 1);
                Fault::ResponseByte(end, byte)
            }
            Cut::After(end, part) => Fault::After(end, self.part(part)),
            Cut::Pieces => Fault::Pieces,
            Cut::HalfClosed(part) => Fault::HalfClosed(self.part(part)),
        }
    }
}

/// Connections that are opened at once, so that no backlog overflows.
const OPENING_MAX: usize = 64;
