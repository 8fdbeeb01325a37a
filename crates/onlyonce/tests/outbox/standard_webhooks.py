"""Signs and verifies as the official library of Standard Webhooks does: `sign SECRET ID`, `verify SECRET`."""
import datetime
import json
import sys

from standardwebhooks import Webhook

role, secret, *rest = sys.argv[1:]
webhook = Webhook(secret)
if role == "sign":
    now = datetime.datetime.now(tz=datetime.timezone.utc)
    signature = webhook.sign(rest[0], now, sys.stdin.read())
    print(json.dumps({"timestamp": str(int(now.timestamp())), "signature": signature}))
else:
    delivery = json.load(sys.stdin)
    webhook.verify(delivery["body"], delivery["headers"])
