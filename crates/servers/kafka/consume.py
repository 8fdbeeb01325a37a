"""Prints the records of a topic, one in a line, until there are COUNT different ones. Usage: consume.py ADDRESS TOPIC COUNT"""

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

address, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "enable.auto.commit": False})
partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
seen, until = set(), time.monotonic() + 30
while len(seen) < count and time.monotonic() < until:
    record = consumer.poll(0.2)
    if record is None or record.error():
        continue
    key = "" if record.key() is None else "=" + record.key().decode()
    headers = " ".join(f"{name}={value.decode()}" for name, value in sorted(record.headers() or []))
    print(record.partition(), key, (record.value() or b"").decode(), headers, sep="\t")
    seen.add((key, record.value()))
if len(seen) < count:
    sys.exit(f"{len(seen)} records of {count}")
