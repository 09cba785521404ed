// Uses the types that openapi-typescript has generated, against a real server. Argument: the server.
// That tsc takes this file is half of the test: a wrong name or a missing field does not compile.

import createClient from 'openapi-fetch';
import type { components, paths } from './generated.js';

declare const process: { argv: string[] };

const LOCK = 'generated/typescript';
const client = createClient<paths>({ baseUrl: process.argv[2] });

function check(what: string, holds: boolean, ...seen: unknown[]): asserts holds {
  if (!holds) throw new Error(`${what}: ${JSON.stringify(seen)}`);
}

async function acquire(owner_id: string) {
  const params = { path: { lock: LOCK } };
  return client.POST('/v1/locks/{lock}/acquire', { params, body: { owner_id, ttl_ms: 30_000 } });
}

/** What an event is about, told apart by its type. */
function lockOf(event: components['schemas']['Event']): string | undefined {
  switch (event.type) {
    case 'granted':
    case 'ended':
      return event.lock;
    case 'queued':
      return event.locks[0];
    default:
      return undefined;
  }
}

const before = await client.GET('/v1/locks', {});
check('list', before.data !== undefined, before.error);

const { data: grant, error } = await acquire('worker-a');
check('acquire', grant !== undefined, error);

const refused = await acquire('worker-b');
check('conflict', refused.error?.code === 'lock_held', refused);
check('holder', refused.error.current_owner_id === 'worker-a', refused.error);

const params = { path: { lock: LOCK } };
const { lease_id, fencing_token } = grant;
const proof = { owner_id: 'worker-a', lease_id, fencing_token };
const renewed = await client.POST('/v1/locks/{lock}/renew', { params, body: proof });
check('renew', renewed.data?.fencing_token === fencing_token, renewed);

const page = await client.GET('/v1/locks', { params: { query: { prefix: 'generated/typescript' } } });
check('listed', page.data?.locks[0]?.holders[0]?.owner_id === 'worker-a', page);

const released = await client.POST('/v1/locks/{lock}/release', { params, body: proof });
check('release', released.data?.released === true, released);

const query = { prefix: LOCK, after: String(before.data.revision), wait_ms: 5000 };
const polled = await client.GET('/v1/events', { params: { query } });
check('events', polled.data !== undefined, polled.error);
const { events } = polled.data;
check('watched', events.length > 0 && events.every((event) => lockOf(event) === LOCK), events);
