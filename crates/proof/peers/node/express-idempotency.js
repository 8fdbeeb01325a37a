// express-idempotency 1.0.6 as its README shows it: in memory, default validators, `isHit` in the handler, and
// `reportError` where the handler fails.
const { idempotency, getSharedIdempotencyService } = require("express-idempotency");
const { charge, isOrder, listen, start } = require("./charges");

const app = start();
app.use("/charges", idempotency());
app.post("/charges", async (request, response) => {
  const service = getSharedIdempotencyService();
  if (service.isHit(request)) return;
  if (!isOrder(request)) return response.status(400).json({ error: "no marker" });
  try {
    const [status, body] = await charge(request.body, request.query);
    response.status(status).json(body);
  } catch (error) {
    await service.reportError(request);
    throw error;
  }
});
listen(app);
