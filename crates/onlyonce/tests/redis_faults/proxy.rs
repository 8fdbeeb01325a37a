//! A network between a node and Redis that can keep what was sent, and deliver it much later.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use servers::Redis;

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    connections: usize,
    /// What is sent on connections before this one does not arrive.
    held_before: usize,
    /// What was sent there, each with its connection to the server.
    held: Vec<(TcpStream, Vec<u8>)>,
}

impl Proxy {
    pub(crate) fn before(server: &Redis) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), server.port());
        let shared = Arc::new(Mutex::new(Shared::default()));
        let of_all = shared.clone();
        std::thread::spawn(move || {
            for node in listener.incoming() {
                let server = TcpStream::connect(("127.0.0.1", target)).unwrap();
                pass_on(node.unwrap(), server, &of_all);
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// From now on nothing that is sent on the connections that there are arrives.
    pub(crate) fn hold(&self) {
        let mut shared = self.shared.lock().unwrap();
        shared.held_before = shared.connections;
    }

    /// Delivers what was held, and waits until the server has answered it or hung up. How many bytes it was.
    pub(crate) fn deliver(&self) -> usize {
        let held = std::mem::take(&mut self.shared.lock().unwrap().held);
        for (server, bytes) in &held {
            let mut server = server;
            server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            // A server that has hung up takes nothing.
            let _ = server.write_all(bytes).and_then(|()| server.read(&mut [0; 1]));
        }
        held.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

fn pass_on(node: TcpStream, server: TcpStream, shared: &Arc<Mutex<Shared>>) {
    let number = {
        let mut shared = shared.lock().unwrap();
        shared.connections += 1;
        shared.connections - 1
    };
    let (to_node, from_server) = (node.try_clone().unwrap(), server.try_clone().unwrap());
    let (there, back) = (shared.clone(), shared.clone());
    std::thread::spawn(move || pass_there(number, node, server, &there));
    std::thread::spawn(move || pass_back(number, from_server, to_node, &back));
}

fn pass_there(number: usize, mut node: TcpStream, mut server: TcpStream, shared: &Mutex<Shared>) {
    let mut bytes = [0; 65_536];
    while let Ok(count @ 1..) = node.read(&mut bytes) {
        let mut shared = shared.lock().unwrap();
        if number < shared.held_before {
            shared.held.push((server.try_clone().unwrap(), bytes[..count].to_vec()));
        } else if server.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

/// Answers to what is delivered late are read by `deliver`.
fn pass_back(number: usize, mut server: TcpStream, mut node: TcpStream, shared: &Mutex<Shared>) {
    let mut bytes = [0; 65_536];
    server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    while number >= shared.lock().unwrap().held_before {
        match server.read(&mut bytes) {
            Ok(0) => return,
            Ok(count) if node.write_all(&bytes[..count]).is_err() => return,
            _ => {}
        }
    }
}
