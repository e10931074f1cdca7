// The page at "/" in headless Chromium: type, stream, hover, cancel, key; writes screenshots beside build/clients.
import assert from 'node:assert/strict';
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {chromium} from 'playwright-core';
import {claim, finish, root, start} from './daemon.mjs';

const shots = join(root, 'build/clients'), keys = join(shots, 'keys.txt');
const browser = await chromium.launch({executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
         '--disable-component-update', '--disable-sync']});

async function open(daemon) {
  const page = await browser.newPage({viewport: {width: 1000, height: 900}});
  const foreign = [], errors = [];
  page.on('request', r => { if (!r.url().startsWith(daemon.base) && !r.url().startsWith('data:')) foreign.push(r.url()); });
  page.on('pageerror', e => errors.push(e.message));
  await page.goto(daemon.base + '/');
  return {page, foreign, errors};
}

const daemon = await start();
const {page, foreign, errors} = await open(daemon);

await claim('the page names the model', async () => {
  await page.waitForFunction(() => document.getElementById('summary').textContent.includes('ggufd fables'));
});

await claim('a story streams, token by token, equal to /generate', async () => {
  await page.fill('#prompt', 'A fox was thirsty');
  await page.fill('#max', '60');
  await page.click('#go');
  await page.waitForFunction(() => document.getElementById('timings').textContent.includes('ended by'));
  const shown = await page.$$eval('#output .token', t => t.map(x => x.textContent).join(''));
  const reply = await fetch(daemon.base + '/generate', {method: 'POST', body: JSON.stringify({prompt: 'A fox was thirsty', max_tokens: 60, stream: false})});
  assert.equal(shown, (await reply.json()).text);
});

await claim('hovering shows alternatives with probabilities', async () => {
  await page.hover('#output .token >> nth=3');
  const rows = await page.$$eval('#detail tr', r => r.map(x => x.textContent));
  assert.equal(rows.length, 5);
  assert.match(rows[0], /%/);
  await page.screenshot({path: join(shots, 'page.png')});
});

await claim('a refused request shows its problem', async () => {
  await page.fill('#prompt', 'word '.repeat(2000));
  await page.click('#go');
  await page.waitForFunction(() => document.getElementById('problem').textContent.includes('context'));
});

await claim('nothing came from elsewhere, no script failed', async () => {
  assert.deepEqual(foreign, []);
  assert.deepEqual(errors, []);
});
await daemon.stop();

writeFileSync(keys, 'a-secret-key-for-the-test\n', {mode: 0o600});
const locked = await start('--api-key-file', keys);
await claim('with a key set, the page asks for it and then works', async () => {
  const {page} = await open(locked);
  await page.waitForSelector('#key', {state: 'visible'});
  await page.fill('#key', 'a-secret-key-for-the-test');
  await page.press('#key', 'Tab');
  await page.waitForFunction(() => document.getElementById('summary').textContent.includes('ggufd fables'));
  await page.fill('#prompt', 'The hen');
  await page.click('#go');
  await page.waitForFunction(() => document.getElementById('timings').textContent.includes('ended by'));
});
await locked.stop();

const off = await start('--page', 'false');
await claim('the page can be switched off', async () => {
  assert.equal((await fetch(off.base + '/')).status, 404);
});
await off.stop();
await browser.close();
finish();
