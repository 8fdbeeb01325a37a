// Signs and verifies as the official library of Standard Webhooks does: `sign SECRET ID`, `verify SECRET`.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// The packages are not installed beside this file.
const { Webhook } = createRequire(`${process.env.PACKAGES}/`)("standardwebhooks");
const [role, secret, id] = process.argv.slice(2);
const webhook = new Webhook(secret);
const input = readFileSync(0, "utf8");
if (role === "sign") {
  const now = new Date();
  const signature = webhook.sign(id, now, input);
  console.log(JSON.stringify({ timestamp: String(Math.floor(now.getTime() / 1000)), signature }));
} else {
  const { body, headers } = JSON.parse(input);
  webhook.verify(body, headers);
}
