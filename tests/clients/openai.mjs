// The npm package "openai" against /v1/completions and /v1/models: what existing clients send must work or be refused by name.
import assert from 'node:assert/strict';
import OpenAI from 'openai';
import {claim, finish, start} from './daemon.mjs';

const daemon = await start();
const client = new OpenAI({baseURL: daemon.base + '/v1', apiKey: 'unused', maxRetries: 0});
const post = (path, body) => fetch(daemon.base + path, {method: 'POST', body: JSON.stringify(body)}).then(r => r.json());
const complete = body => client.completions.create({model: 'demo', ...body});

await claim('models are listed', async () => {
  const models = await client.models.list();
  assert.equal(models.data.length, 1);
  assert.equal(models.data[0].object, 'model');
});

await claim('a completion equals /generate', async () => {
  const a = await complete({prompt: 'A fox was thirsty', max_tokens: 20, temperature: 0});
  const b = await post('/generate', {prompt: 'A fox was thirsty', max_tokens: 20, stream: false});
  assert.equal(a.choices[0].text, b.text);
  assert.equal(a.choices[0].finish_reason, 'length');
  assert.deepEqual(a.usage, {prompt_tokens: 7, completion_tokens: 20, total_tokens: 27});
});

await claim('a stream of server-sent events gives the same text', async () => {
  const whole = await complete({prompt: 'The raven and the echo.', max_tokens: 40});
  let text = '', chunks = 0, reason = null;
  for await (const part of await complete({prompt: 'The raven and the echo.', max_tokens: 40, stream: true})) {
    text += part.choices[0]?.text ?? '';
    reason = part.choices[0]?.finish_reason ?? reason;
    chunks++;
  }
  assert.equal(text, whole.choices[0].text);
  assert.equal(reason, 'length');
  assert.ok(chunks > 10);
});

await claim('stop strings end with finish_reason stop', async () => {
  const r = await complete({prompt: 'The owl who knew', max_tokens: 60, stop: ['.']});
  assert.equal(r.choices[0].text, ' everything');
  assert.equal(r.choices[0].finish_reason, 'stop');
});

await claim('an end-of-generation token stands in the token arrays', async () => {
  const r = await complete({prompt: 'he began again.', max_tokens: 60, logprobs: 1});
  assert.equal(r.choices[0].finish_reason, 'stop');
  assert.equal(r.choices[0].logprobs.tokens.at(-1), '</s>');
});

await claim('a batch of strings is answered in order, one choice each', async () => {
  const prompts = ['A fox was', 'The hen', 'The owl who knew'];
  const r = await complete({prompt: prompts, max_tokens: 5});
  assert.deepEqual(r.choices.map(c => c.index), [0, 1, 2]);
  for (const [i, prompt] of prompts.entries())
    assert.equal(r.choices[i].text, (await complete({prompt, max_tokens: 5})).choices[0].text);
});

await claim('token arrays, alone and in a batch', async () => {
  const {tokens} = await post('/tokenize', {content: 'A fox was', add_special: true});
  const one = await complete({prompt: tokens, max_tokens: 4}), two = await complete({prompt: [tokens, tokens], max_tokens: 4});
  assert.equal(one.choices[0].text, two.choices[0].text);
  assert.equal(one.choices[0].text, two.choices[1].text);
});

await claim('echo with logprobs gives the sums of /logits', async () => {
  for (const max_tokens of [0, 1]) {
    const {tokens} = await post('/tokenize', {content: 'A fox was thirsty and came', add_special: true});
    const r = await complete({prompt: tokens, echo: true, logprobs: 1, max_tokens});
    const l = await post('/logits', {prompt: tokens, positions: 'all', top: 0});
    const mine = r.choices[0].logprobs.token_logprobs;
    assert.equal(mine[0], null);
    assert.equal(mine.length, tokens.length + max_tokens);
    const sum = l.positions.reduce((s, p) => s + (p.next ? p.next.logprob : 0), 0);
    assert.equal(mine.slice(1, tokens.length).reduce((s, x) => s + x, 0), sum);
    assert.equal(r.choices[0].logprobs.text_offset[0], 0);
  }
});

await claim('model, user and seed have no effect', async () => {
  const r = await complete({prompt: 'A fox was', max_tokens: 5, user: 'somebody', seed: 7, n: 1});
  assert.equal(r.choices[0].text, (await complete({prompt: 'A fox was', max_tokens: 5})).choices[0].text);
});

for (const [field, value] of [['temperature', 0.7], ['n', 2], ['top_p', 0.5], ['best_of', 3], ['presence_penalty', 1], ['max_token', 5]])
  await claim(`${field} ${value} is refused by name`, async () => {
    await assert.rejects(complete({prompt: 'A fox', [field]: value}), e => [400, 501].includes(e.status) && JSON.stringify(e).includes(field));
  });

await claim('chat is refused by name', async () => {
  await assert.rejects(client.chat.completions.create({model: 'demo', messages: [{role: 'user', content: 'hi'}]}), e => e.status === 501);
});

await daemon.stop();
finish();
