// Starts the built daemon on a free port for a client test, and counts claims.
import {spawn} from 'node:child_process';
import {createServer} from 'node:net';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
export const model = join(root, 'tests/models/fables-q8_0.gguf');

function freePort() {
  return new Promise(resolve => {
    const server = createServer();
    server.listen(0, '127.0.0.1', () => {
      const {port} = server.address();
      server.close(() => resolve(port));
    });
  });
}

export async function start(...options) {
  const port = await freePort(), base = `http://127.0.0.1:${port}`;
  const child = spawn(join(root, 'build/ggufd'), ['--model', model, '--listen', `127.0.0.1:${port}`, '--log-level', 'warn', ...options],
                      {stdio: 'inherit'});
  for (;;) {
    if (child.exitCode !== null) throw new Error(`the daemon ended with ${child.exitCode}`);
    try {
      if ((await fetch(base + '/ready')).ok) break;
    } catch (e) {
      await new Promise(r => setTimeout(r, 50));
    }
  }
  const stop = () => new Promise(resolve => {
    child.on('exit', resolve);
    child.kill('SIGTERM');
  });
  return {base, stop};
}

let passed = 0, failed = 0;
export async function claim(name, test) {
  try {
    await test();
    passed++;
    console.log('ok', name);
  } catch (e) {
    failed++;
    console.log('FAILED', name, e.message);
  }
}
export function finish() {
  console.log(`${passed} passed, ${failed} failed, 0 skipped`);
  process.exitCode = failed || !passed ? 1 : 0;
}
