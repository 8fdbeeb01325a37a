// What every peer guards: a charge that is one line of a file. Usage of each server: PORT FILE REDIS
// `slow_ms` in the body: how long it takes. `fail` in the query or the body: `before` and `after` throw before or after the
// effect, `decline` is a 402 without an effect.
const { randomUUID } = require("crypto");
const fs = require("fs");
const express = require("express");

const [port, file, redis] = process.argv.slice(2);
const WORK_MS = 40;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function charge(body, query) {
  const fail = query.fail ?? body.fail;
  const half = (body.slow_ms ?? WORK_MS) / 2;
  await pause(half);
  if (fail === "before") throw new Error("failed before the effect");
  if (fail === "decline") return [402, { error: "declined", id: randomUUID() }];
  fs.appendFileSync(file, body.marker + "\n");
  await pause(half);
  if (fail === "after") throw new Error("failed after the effect");
  return [201, { id: randomUUID(), marker: body.marker }];
}

// An app whose bodies are read. JSON that cannot be read is a 400.
function start() {
  const app = express();
  app.use(express.json());
  app.get("/count", (request, response) => {
    const lines = fs.existsSync(file) ? fs.readFileSync(file, "utf8").split("\n") : [];
    response.type("text").send(String(lines.filter((line) => line === request.query.marker).length));
  });
  return app;
}

const caller = (request) => request.get("x-api-key") ?? "anonymous";
const isOrder = (request) => typeof request.body?.marker === "string";
const listen = (app) => {
  app.use((error, request, response, next) => {
    if (response.headersSent) return;
    const status = response.statusCode >= 400 ? response.statusCode : (error.status ?? 500);
    response.status(status).json({ error: error.message });
  });
  app.listen(Number(port), "127.0.0.1");
};

module.exports = { caller, charge, isOrder, listen, redis, start };
