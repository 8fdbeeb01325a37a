"""Produces a record for each key, as the Java client would. Usage: produce.py ADDRESS TOPIC KEY…"""

import sys

from confluent_kafka import Producer

address, topic, keys = sys.argv[1], sys.argv[2], sys.argv[3:]
producer = Producer({"bootstrap.servers": address, "partitioner": "murmur2"})
for key in keys:
    producer.produce(topic, key=key)
if producer.flush(30) > 0:
    sys.exit("the broker does not take them")
