// Work under a lock, step by step: `node examples/migrate.js` in several terminals, after `npm run build`.
//
// It asks the server that LEASEHOLD_ADDR names, or the one at 127.0.0.1:8080.

import { Client, Fence, HeldError, LeaseLostError } from "leasehold";

const store = new Fence(); // in the place of a database that compares fencing tokens
const client = Client.fromEnv();
try {
  await client.lock("db/migrate", { ttl: "30s", wait: "10s" }).run((lease) => {
    for (let step = 0; step < 3; step += 1) {
      lease.check();
      store.accept(lease.fencingToken);
      console.log(`step ${step} with token ${lease.fencingToken}`);
    }
  });
} catch (error) {
  if (error instanceof HeldError) console.log(`${error.holders[0]?.ownerId} has it; ${error.waiters} wait already`);
  else if (error instanceof LeaseLostError) console.log(`stopped: ${error.message}`);
  else throw error;
} finally {
  await client.close();
}
