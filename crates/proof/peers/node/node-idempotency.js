// @node-idempotency/core 1.0.11 over its Redis adapter, defaults: 409 in progress, 422 for another body. It is a library
// without an express layer: `onRequest` before the work, `onResponse` after it, errors kept too, as its NestJS layer does.
const { Idempotency, IdempotencyErrorCodes } = require("@node-idempotency/core");
const { RedisStorageAdapter } = require("@node-idempotency/storage-adapter-redis");
const { charge, isOrder, listen, redis, start } = require("./charges");

const STATUS = {
  [IdempotencyErrorCodes.REQUEST_IN_PROGRESS]: 409,
  [IdempotencyErrorCodes.IDEMPOTENCY_FINGERPRINT_MISSMATCH]: 422,
};

async function main() {
  const storage = new RedisStorageAdapter({ url: redis });
  await storage.connect();
  const idempotency = new Idempotency(storage);
  const app = start();
  app.post("/charges", async (request, response) => {
    if (!isOrder(request)) return response.status(400).json({ error: "no marker" });
    const { headers, path, body, method } = request;
    const asked = { headers, path, body, method };
    let kept;
    try {
      kept = await idempotency.onRequest(asked);
    } catch (error) {
      return response.status(STATUS[error.code] ?? 400).json({ error: error.message });
    }
    if (kept) return response.status(kept.additional.status).json(kept.body ?? { error: kept.error });
    try {
      const [status, answer] = await charge(body, request.query);
      await idempotency.onResponse(asked, { body: answer, additional: { status } });
      response.status(status).json(answer);
    } catch (error) {
      await idempotency.onResponse(asked, { error: error.message, additional: { status: 500 } });
      response.status(500).json({ error: error.message });
    }
  });
  listen(app);
}
main();
