// @aws-lambda-powertools/idempotency 2.35.0: `makeIdempotent` over its own cache persistence (Redis), defaults: the body
// is not compared. (With `payloadValidationJmesPath` every replay is refused: this persistence loses the hash of the body when it
// completes a record.) The function is a Lambda's; this server calls it, and its statuses are the IETF draft's. One Lambda context of 30 s per request.
process.env.POWERTOOLS_DEV = "true";
const { IdempotencyConfig, makeIdempotent } = require("@aws-lambda-powertools/idempotency");
const { CachePersistenceLayer } = require("@aws-lambda-powertools/idempotency/cache");
const { createClient } = require("@redis/client");
const { caller, charge, isOrder, listen, redis, start } = require("./charges");

const STATUS = {
  IdempotencyAlreadyInProgressError: 409,
  IdempotencyInconsistentStateError: 409,
  IdempotencyValidationError: 422,
  IdempotencyKeyError: 400,
};

async function main() {
  const client = await createClient({ url: redis }).connect();
  const config = new IdempotencyConfig({
    eventKeyJmesPath: "key",
    throwOnNoIdempotencyKey: true,
    lambdaContext: { getRemainingTimeInMillis: () => 30_000 },
  });
  const execute = makeIdempotent(async (event) => charge(event.body, event.query), {
    config,
    persistenceStore: new CachePersistenceLayer({ client }),
  });
  const app = start();
  app.post("/charges", async (request, response) => {
    if (!isOrder(request)) return response.status(400).json({ error: "no marker" });
    const key = request.get("idempotency-key");
    const event = { key: key && `${caller(request)}/${key}`, body: request.body, query: { ...request.query } };
    try {
      const [status, answer] = await execute(event);
      response.status(status).json(answer);
    } catch (error) {
      response.status(STATUS[error.name] ?? 500).json({ error: error.message });
    }
  });
  listen(app);
}
main();
