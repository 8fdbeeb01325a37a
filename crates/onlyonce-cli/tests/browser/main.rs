//! The pages in a real browser: the payment form and the shop window of `onlyonce demo`, and the operator's page.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accessibility;
mod cable;
mod demo;
mod driver;
mod hostile_text;
mod in_doubt;
mod operator_page;
mod pay_form;
mod served;
mod shop_window;
mod token;
