use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

// threat K28
#[tokio::test]
async fn a_thread_that_is_stuck_does_not_stop_accepting_for_the_others() {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stage, staged) = watch::channel(Stage::Serving);
    let ((stuck, mut never), (well, mut served)) = (queue(), queue());
    let connections = Connections::new("clients", 10_000);
    let accepting = tokio::spawn(accept(listener, connections, vec![stuck, well], staged));
    let mut clients = Vec::new();
    for n in 0..4 * ACCEPTED_MAX {
        clients.push(TcpStream::connect(address).await.unwrap());
        // One of them waits for the thread that is stuck.
        if n > 0 {
            let accepted = timeout(PATIENCE, served.recv()).await;
            drop(accepted.expect("the other thread serves it").unwrap());
        }
    }
    assert!(never.try_recv().is_ok() && never.try_recv().is_err());
    stage.send_replace(Stage::Draining);
    timeout(PATIENCE, accepting).await.expect("it ends").unwrap().unwrap();
}

#[tokio::test]
async fn while_all_threads_are_stuck_connections_wait_and_a_drain_does_not() {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stage, staged) = watch::channel(Stage::Serving);
    let (queue, mut served) = queue();
    let connections = Connections::new("clients", 10_000);
    let accepting = tokio::spawn(accept(listener, connections.clone(), vec![queue], staged));
    let mut clients = Vec::new();
    for _ in 0..ACCEPTED_MAX + 2 {
        clients.push(TcpStream::connect(address).await.unwrap());
    }
    timeout(PATIENCE, async {
        while connections.counts().open <= ACCEPTED_MAX {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("one more than the queue holds is accepted, and waits");
    drop(served.recv().await.unwrap());
    timeout(PATIENCE, async {
        while connections.counts().open <= ACCEPTED_MAX {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the next one is accepted when there is room");
    stage.send_replace(Stage::Draining);
    timeout(PATIENCE, accepting).await.expect("it ends").unwrap().unwrap();
}
