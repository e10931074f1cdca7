#!/usr/bin/env python3
"""Makes the demo model tests/models/fables-q8_0.gguf from bench/demo/fables.txt.

    train.py OUT.gguf [--steps N]        needs Debian's python3-torch; about ten minutes on one core

A llama model of 2.3 million parameters: SentencePiece-style byte-fallback vocabulary of 1,280 pieces learned from the
same text by byte-pair merging, trained on whole fables and on endings that begin at a sentence, stored as Q8_0
(norms F32). Fixed seed, one thread: the same torch build gives the same file; its hash stands in README.md here.
"""
import argparse, collections, os, random, struct, sys
import torch, torch.nn as nn, torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
N_VOCAB, N_EMBD, N_LAYER, N_HEAD, N_KV, N_FF, N_CTX, EPS, BASE = 1280, 192, 5, 6, 3, 512, 512, 1e-5, 10000.0
HEAD = N_EMBD // N_HEAD
SPACE = '\u2581'


def learn_pieces(text, n):
    """Byte-pair merging inside words that carry their leading blank; returns pieces in the order learned."""
    words = collections.Counter(w.replace(' ', SPACE) for w in split_words(text))
    symbols = {w: list(w) for w in words}
    chars = sorted({c for w in words for c in w})
    pieces, known = [], set(chars)
    while len(chars) + len(pieces) < n:
        pairs = collections.Counter()
        for w, count in words.items():
            s = symbols[w]
            for a, b in zip(s, s[1:]):
                pairs[a + b, a, b] += count
        if not pairs:
            raise SystemExit(f'text too small for {n} pieces: {len(chars) + len(pieces)}')
        joined, a, b = max(pairs, key=lambda k: (pairs[k], k))
        if joined not in known:
            known.add(joined)
            pieces.append(joined)
        for w in symbols:
            s, out, i = symbols[w], [], 0
            while i < len(s):
                if i + 1 < len(s) and s[i] == a and s[i + 1] == b:
                    out.append(joined)
                    i += 2
                else:
                    out.append(s[i])
                    i += 1
            symbols[w] = out
    return pieces, chars


def split_words(text):
    word, out = '', []
    for c in text:
        if c == ' ' and word:
            out.append(word)
            word = ''
        word += c
    return out + [word]


class Vocabulary:
    """Piece i has score -i: SentencePiece merges the pair with the highest score, leftmost first."""

    def __init__(self, fables):
        pieces, chars = learn_pieces(' ' + ' '.join(fables), N_VOCAB - 259)
        self.texts = ['<unk>', '<s>', '</s>'] + [f'<0x{b:02X}>' for b in range(256)] + pieces + chars
        self.types = [2, 3, 3] + [6] * 256 + [1] * (len(pieces) + len(chars))
        self.scores = [0.0] * 259 + [-float(i) for i in range(len(pieces) + len(chars))]
        self.ids = {t: i for i, t in enumerate(self.texts) if i >= 259}

    def encode(self, text):
        s = list((' ' + text).replace(' ', SPACE))
        while True:
            best = None
            for i in range(len(s) - 1):
                j = self.ids.get(s[i] + s[i + 1])
                if j is not None and (best is None or self.scores[j] > self.scores[best[1]]):
                    best = (i, j)
            if best is None:
                return [self.ids[p] for p in s]
            i, j = best
            s[i:i + 2] = [self.texts[j]]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.ffn_norm = nn.Parameter(torch.ones(N_EMBD)), nn.Parameter(torch.ones(N_EMBD))
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.q, self.k, self.v = linear(N_EMBD, N_EMBD), linear(N_EMBD, N_KV * HEAD), linear(N_EMBD, N_KV * HEAD)
        self.o = linear(N_EMBD, N_EMBD)
        self.gate, self.up, self.down = linear(N_EMBD, N_FF), linear(N_EMBD, N_FF), linear(N_FF, N_EMBD)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        h = norm(x, self.attn_norm)
        q = rope(self.q(h).view(b, t, N_HEAD, HEAD), cos, sin).transpose(1, 2)
        k = rope(self.k(h).view(b, t, N_KV, HEAD), cos, sin).transpose(1, 2).repeat_interleave(N_HEAD // N_KV, 1)
        v = self.v(h).view(b, t, N_KV, HEAD).transpose(1, 2).repeat_interleave(N_HEAD // N_KV, 1)
        future = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = (q @ k.transpose(2, 3) * HEAD ** -0.5).masked_fill(future, float('-inf')).softmax(-1)
        a = (weights @ v).transpose(1, 2).reshape(b, t, N_EMBD)
        x = x + self.o(a)
        h = norm(x, self.ffn_norm)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def norm(x, g):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * g


def rope(x, cos, sin):
    """Neighbouring pairs, as the llama architecture stores them in GGUF."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embd = nn.Embedding(N_VOCAB, N_EMBD)
        nn.init.normal_(self.embd.weight, std=0.05)
        self.blocks = nn.ModuleList(Block() for _ in range(N_LAYER))
        self.norm = nn.Parameter(torch.ones(N_EMBD))
        angle = torch.outer(torch.arange(N_CTX).float(), BASE ** (-torch.arange(0, HEAD, 2).float() / HEAD))
        self.register_buffer('cos', angle.cos()[:, None])
        self.register_buffer('sin', angle.sin()[:, None])

    def forward(self, ids):
        x, t = self.embd(ids), ids.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:t], self.sin[:t])
        return norm(x, self.norm) @ self.embd.weight.T


def samples(fables):
    """Every fable whole, and every ending that begins at one of its sentences (but the last)."""
    out = []
    for fable in fables:
        sentences = fable.replace('." ', '."|').replace('?" ', '?"|').replace('!" ', '!"|').replace('. ', '.|').split('|')
        out.append([fable] + [' '.join(sentences[i:]) for i in range(1, len(sentences) - 1)])
    return out


def train(vocab, fables, steps):
    model = Model()
    rows = [[[1] + vocab.encode(t) + [2] for t in starts] for starts in samples(fables)]
    longest = max(len(r[0]) for r in rows)
    assert longest <= N_CTX, longest
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        batch = [r[0] if random.random() < 0.5 else random.choice(r) for r in random.sample(rows, 9)]
        width = max(map(len, batch))
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        target = torch.full((len(batch), width), -100)
        for i, row in enumerate(batch):
            ids[i, :len(row)] = torch.tensor(row)
            target[i, :len(row) - 1] = torch.tensor(row[1:])
        loss = F.cross_entropy(model(ids).flatten(0, 1), target.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 0 or step == steps - 1:
            print(f'step {step} of {steps}, loss {loss.item():.4f}', file=sys.stderr, flush=True)
    return model


def q8_0(w):
    """Blocks of 32: F16 scale, 32 int8; the scale is the largest magnitude over 127."""
    blocks = w.detach().contiguous().view(-1, 32)
    d = blocks.abs().amax(1, keepdim=True) / 127
    q = torch.round(blocks / torch.where(d == 0, torch.ones_like(d), d)).to(torch.int8)
    return b''.join(a.tobytes() + b.tobytes() for a, b in zip(d.half().numpy(), q.numpy()))


def string(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack('<Q', len(b)) + b


def key(name, kind, data):
    return string(name) + struct.pack('<I', kind) + data


def write_gguf(path, model, vocab):
    u32 = lambda name, v: key(name, 4, struct.pack('<I', v))
    f32 = lambda name, v: key(name, 6, struct.pack('<f', v))
    array = lambda name, kind, n, data: key(name, 9, struct.pack('<IQ', kind, n) + data)
    n = len(vocab.texts)
    keys = [key('general.architecture', 8, string('llama')), key('general.name', 8, string('ggufd fables')),
            key('general.license', 8, string('MIT')), u32('general.file_type', 7),
            u32('llama.context_length', N_CTX), u32('llama.embedding_length', N_EMBD), u32('llama.block_count', N_LAYER),
            u32('llama.feed_forward_length', N_FF), u32('llama.attention.head_count', N_HEAD),
            u32('llama.attention.head_count_kv', N_KV), f32('llama.attention.layer_norm_rms_epsilon', EPS),
            u32('llama.rope.dimension_count', HEAD), f32('llama.rope.freq_base', BASE), u32('llama.vocab_size', n),
            key('tokenizer.ggml.model', 8, string('llama')), key('tokenizer.ggml.pre', 8, string('default')),
            array('tokenizer.ggml.tokens', 8, n, b''.join(map(string, vocab.texts))),
            array('tokenizer.ggml.scores', 6, n, struct.pack(f'<{n}f', *vocab.scores)),
            array('tokenizer.ggml.token_type', 5, n, struct.pack(f'<{n}i', *vocab.types)),
            u32('tokenizer.ggml.bos_token_id', 1), u32('tokenizer.ggml.eos_token_id', 2),
            u32('tokenizer.ggml.unknown_token_id', 0),
            key('tokenizer.ggml.add_bos_token', 7, b'\1'), key('tokenizer.ggml.add_eos_token', 7, b'\0')]
    tensors = [('token_embd.weight', model.embd.weight), ('output_norm.weight', model.norm)]
    for i, b in enumerate(model.blocks):
        for name, w in (('attn_norm', b.attn_norm), ('attn_q', b.q), ('attn_k', b.k), ('attn_v', b.v), ('attn_output', b.o),
                        ('ffn_norm', b.ffn_norm), ('ffn_gate', b.gate), ('ffn_up', b.up), ('ffn_down', b.down)):
            tensors.append((f'blk.{i}.{name}.weight', w.weight if isinstance(w, nn.Linear) else w))
    infos, data = b'', b''
    for name, w in tensors:
        dims = tuple(reversed(w.shape))
        infos += string(name) + struct.pack(f'<I{len(dims)}QIQ', len(dims), *dims, 0 if len(dims) == 1 else 8, len(data))
        data += w.detach().numpy().tobytes() if len(dims) == 1 else q8_0(w)
        data += b'\0' * (-len(data) % 32)
    head = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(keys)) + b''.join(keys) + infos
    with open(path, 'wb') as f:
        f.write(head + b'\0' * (-len(head) % 32) + data)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('out')
    p.add_argument('--steps', type=int, default=700)
    a = p.parse_args()
    torch.manual_seed(1)
    random.seed(1)
    torch.set_num_threads(1)
    fables = open(os.path.join(HERE, 'fables.txt')).read().strip().split('\n\n')
    vocab = Vocabulary(fables)
    model = train(vocab, fables, a.steps)
    write_gguf(a.out, model, vocab)
    print(f'{a.out}: {os.path.getsize(a.out)} bytes, {sum(w.numel() for w in model.parameters())} parameters')


main()
