"""The broker inside librdkafka. Usage: broker.py FILE TOPIC…; FILE gets its address when the topics are there."""

import signal
import sys

from confluent_kafka import Producer

told, topics = sys.argv[1], sys.argv[2:]
broker = Producer({"test.mock.num.brokers": 1})
addresses = [f"{b.host}:{b.port}" for b in broker.list_topics(timeout=30).brokers.values()]
client = Producer({"bootstrap.servers": addresses[0], "allow.auto.create.topics": True})
for topic in topics:
    # Asked for, a topic is made.
    client.list_topics(topic, timeout=30)
with open(told, "w") as file:
    file.write(addresses[0] + "\n")
while True:
    signal.pause()
