// A worker that holds a lock while it works, and stops when it is lost.
//
//   node worker.mjs KEY [STEPS]
//
// Needs Node 18 or newer, and no package. The lock is bound to the connection:
// if this process ends, in whatever way, the lock is free at once.
import { setTimeout as pause } from 'node:timers/promises';

const base = process.env.LOCKSIDECAR_URL ?? 'http://localhost:5625';

class NotAcquired extends Error {}

// hold calls work with a signal that aborts once the lock is lost, and gives
// the lock back when work is over. fetch gives up on an answer after 5 minutes,
// so wait less at a time.
async function hold(key, parameters, work) {
  const connection = new AbortController();
  const lost = new AbortController();
  const answer = await fetch(`${base}/locks/${encodeURIComponent(key)}`, {
    method: 'POST',
    body: new URLSearchParams({ bind: 'connection', ...parameters }),
    signal: connection.signal,
  });
  if (!answer.ok) throw new NotAcquired((await answer.json()).code);
  const fence = Number(answer.headers.get('Lock-Fencing-Token'));

  const lose = (why) => lost.abort(new Error(`the lock is lost: ${why}`));
  let expiry;
  const follow = async () => {
    for await (const { event, data } of events(answer.body)) {
      if (event === 'lost') return lose(data.cause);
      // Without news until then, nobody vouches for the lock any more.
      clearTimeout(expiry);
      expiry = setTimeout(lose, data.valid_for_ms, 'no renewal was heard of');
    }
    lose('the stream has ended');
  };
  const following = follow().catch(() => lose('the connection has ended'));
  try {
    return await work(lost.signal, fence);
  } finally {
    clearTimeout(expiry);
    connection.abort(); // gives it back
    await following;
    clearTimeout(expiry);
  }
}

// events reads server-sent events.
async function* events(body) {
  let rest = '';
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + chunk).split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) {
      const field = (name) => block.split('\n').find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
      if (field('event')) yield { event: field('event'), data: JSON.parse(field('data')) };
    }
  }
}

const [key, steps = '1000'] = process.argv.slice(2);
try {
  await hold(key, { wait: '30s', ttl: '10s', note: 'worker.mjs' }, async (lost, fence) => {
    console.log('held', fence);
    for (let step = 0; step < Number(steps); step++) {
      lost.throwIfAborted();
      await pause(50, undefined, { signal: lost }).catch(() => {}); // a piece of work
    }
    console.log('done');
  });
} catch (err) {
  console.log(err instanceof NotAcquired ? 'not acquired' : 'lost', err.message);
  process.exitCode = err instanceof NotAcquired ? 75 : 76;
}
