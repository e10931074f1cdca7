#!/usr/bin/env python3
"""Compares the tokenizer with an independent, slow one on random texts and random vocabularies.

tokenizer_crosscheck.py TOOL SHARED [TEXTS] [SEED]: TOOL is build/MODE/tests/tools/tokenize, SHARED the folder with tools/,
spec/ and fixtures/. Every name of tokenizer.ggml.pre over one vocabulary, every vocabulary of the fixtures, and small
random vocabularies with overlapping special tokens, strip flags, odd merges and missing bytes. Prints a line a kind;
exit status 1 on the first difference."""
import os
import random
import subprocess
import sys
import tempfile

TOOL, SHARED = sys.argv[1], sys.argv[2]
TEXTS = int(sys.argv[3]) if len(sys.argv) > 3 else 500
SEED = int(sys.argv[4]) if len(sys.argv) > 4 else 1
sys.path.insert(0, os.path.join(SHARED, "tools"))
import gguf_metadata  # noqa: E402
import tokenizer_reference as reference  # noqa: E402

STR, ARR, BOOL, U32, F32, I32 = 8, 9, 7, 4, 6, 5
ALPHABETS = [
    "abcdefghij", "ABCDEFGHIJ", "aAbBcCéÉßñÖö", "0123456789", "٠١٢३४५²½", " ", " \t\n\r", "\n\r", "\u00a0\u2003\u3000\u0085\u200b",
    ".,;:!?-_()[]{}<>/\\|`~@#$%^&*+='\"", "'", "stmdrevlSTMDREVL", "приветМИР", "漢字仮名カナ", "한국어ㄱㅏ", "ㄅㄆㄇ", "नमस्तेभาษาไทย",
    "\u0301\u0308\u20e3", "😀🦙👍🏽", "€£→∑", "—‘’“”…、。（）：；", "\u0000\u0001\u007f\ufffd\ue000", "豈\u8c48힣\u3131", "</s>▁Ġ",
]
PHRASES = ["'s", "'ll", "'RE", "don't", "<sentinel:12>", "IMGIMGABCZ", "    ", "\r\n\r\n", " \n ", "camelCase", "HTMLParser", "a/\nb", "12345678",
           "<|im_start|>", "<|endoftext|>", "<s>", "</s>", "<unk>", "[INST]", "<0x41>", "<mask>"]
BROKEN = [b"\xff", b"\xc1\x81", b"\xe0\x80\xa0", b"\xed\xa0\x80", b"\xe6\xad", b"\xf0\x9f\x98", b"\x80", b"\xc0\xaf", b"\xf8\x88", b"\xc3"]


def random_text(r, extra=()):
    out = b""
    for _ in range(r.choice((1, 2, 3, 5, 8, 13, 30))):
        kind = r.random()
        if kind < 0.12:
            out += r.choice(PHRASES).encode()
        elif kind < 0.16:
            out += r.choice(BROKEN)
        elif kind < 0.25 and extra:
            out += r.choice(extra)
        elif kind < 0.28:
            out += chr(r.choice((r.randrange(0x20, 0x3000), r.randrange(0x3000, 0xD800), r.randrange(0xE000, 0x20000)))).encode()
        else:
            letters = r.choice(ALPHABETS)
            out += "".join(r.choice(letters) for _ in range(r.choice((1, 1, 2, 3, 4, 7, 12)))).encode()
    return out


def run(path, *args, texts=()):
    done = subprocess.run([TOOL, path, *args], input="".join(t.hex() + "\n" for t in texts).encode(), capture_output=True)
    if done.returncode:
        return done.stderr.decode()
    return done.stdout.decode().split("\n")[:-1]


def fail(what, *details):
    print("DIFFERENCE:", what, *details)
    sys.exit(1)


def compare_vocabulary(name, path, v):
    lines = run(path, "vocabulary")
    if isinstance(lines, str):
        fail(name, "was refused:", lines)
    s = v.sp
    want = [s[k] for k in "bos eos eot eom unk sep pad mask fim_pre fim_suf fim_mid fim_pad fim_rep fim_sep".split()]
    want += [int(v.add_bos), int(v.add_eos), int(v.add_space_prefix)]
    if [int(x) for x in lines[0].split()] != want:
        fail(name, "special ids", lines[0], want)
    for i, line in enumerate(lines[1:]):
        want = "%d %d %s" % (v.attr[i], i in v.eog, v.piece(i).hex())
        if line != want:
            fail(name, "token", i, v.text[i], line, want)


def compare_texts(name, path, v, texts):
    for add, parse in ((0, 0), (0, 1), (1, 1)):
        for text, line in zip(texts, run(path, str(add), str(parse), texts=texts)):
            try:
                want = " ".join(map(str, v.tokenize(text, bool(add), bool(parse))))
            except (KeyError, reference.VocabError):
                want = None  # there is an error, or the unknown token stands in
            if want is not None and line != want:
                fail(name, (add, parse), text, "got", line, "want", want)
    return 3 * len(texts)


def check(name, kv, folder, texts, vocabulary=True):
    path = os.path.join(folder, "v.gguf")
    gguf_metadata.write(path, kv)
    try:
        v = reference.Vocab(kv)
    except reference.VocabError as e:
        if not isinstance(run(path, "vocabulary"), str) and "duplicate" not in str(e):
            fail(name, "should be refused:", e)
        return 0
    if vocabulary:
        compare_vocabulary(name, path, v)
    return compare_texts(name, path, v, texts)


def random_vocabulary(r):
    """Few letters, so that everything overlaps."""
    spm = r.random() < 0.5
    space = "▁" if spm else "Ġ"
    letters = ["a", "b", "é", space, "<", ">"] if spm else ["a", "b", "Ã", "©", space, "<", ">", "Ċ"]
    texts = [b"<unk>", b"<s>", b"</s>"] + ([b"<|endoftext|>"] if r.random() < 0.7 else [])
    types = [2, 3, 3] + [3] * (len(texts) - 3)
    if spm:
        for b in range(256):
            if r.random() < 0.98:
                texts.append(b"<0x%02X>" % b)
                types.append(6)
    for c in letters:
        texts.append(c.encode())
        types.append(1)
    for _ in range(r.randrange(40)):
        texts.append("".join(r.choice(letters) for _ in range(r.randrange(2, 6))).encode())
        types.append(r.choice((1, 1, 1, 1, 5, 0)))
    special = []
    for _ in range(r.choice((0, 2, 10, 40))):
        special.append("".join(r.choice(("a", "b", " ", "\n", "<", "é")) for _ in range(r.choice((1, 2, 2, 3, 3, 4, 9)))).encode())
    for _ in range(r.randrange(6)):
        special.append(r.choice([t for row in reference.DETECT for t in row[1]] + reference.EOG + [b"<|channel|>", b"<mask>", b"unused1"]))
    texts += special
    types += [r.choice((2, 3, 4, 4, 4, 1, 6)) if len(s) > 2 else r.choice((3, 4)) for s in special]
    seen, rows = set(), []
    for row in zip(texts, types):
        if row[0] not in seen:
            seen.add(row[0])
            rows.append(row)
    kv = {
        "general.architecture": (STR, b"llama"),
        "general.name": (STR, r.choice((b"x", b"x", b"Phi-3 mini", b"MODERN-BERT", b"phi3"))),
        "tokenizer.ggml.model": (STR, b"llama" if spm else b"gpt2"),
        "tokenizer.ggml.pre": (STR, r.choice((b"gpt-2", b"llama-bpe", b"default", b"jina-v2-de", b"whitespace", b"gemma4", b"sarvam-moe", b"tekken"))),
        "tokenizer.ggml.tokens": (ARR, (ARR, STR, [t for t, _ in rows])),
        "tokenizer.ggml.token_type": (ARR, (ARR, I32, [t for _, t in rows])),
        "tokenizer.ggml.scores": (ARR, (ARR, F32, [float(r.randrange(-6, 3)) for _ in rows])),
    }
    merges = []
    for _ in range(r.randrange(40)):
        parts = ["".join(r.choice(letters) for _ in range(r.choice((1, 1, 2, 3)))) for _ in range(2)]
        merges.append((parts[0] + " " + parts[1]).encode())
    merges += [b"nospace", b"", b" a b", b"a  b"][: r.randrange(5)]
    r.shuffle(merges)
    kv["tokenizer.ggml.merges"] = (ARR, (ARR, STR, merges))
    for key in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        if r.random() < 0.3:
            kv["tokenizer.ggml." + key] = (BOOL, r.random() < 0.5)
    for _, key in reference.KEYS:
        if r.random() < 0.1:
            kv["tokenizer.ggml." + key] = (U32, r.randrange(len(rows) + 3))
    return {k: (v if v[0] != ARR else (ARR, v[1])) for k, v in kv.items()}, special


def main():
    r, total = random.Random(SEED), 0
    with tempfile.TemporaryDirectory() as folder:
        base = gguf_metadata.read(os.path.join(SHARED, "fixtures/vocab/pre/BASE.gguf"))
        names = [row["pre"] for row in reference.tables()["rows"]]
        for name in names:
            kv = dict(base)
            kv["tokenizer.ggml.pre"] = (STR, name.encode())
            total += check("pre " + name, kv, folder, [random_text(r) for _ in range(TEXTS)])
        print("%d names of tokenizer.ggml.pre, %d texts: 0 differences" % (len(names), total), flush=True)
        total = 0
        fixtures = sorted(f for f in os.listdir(os.path.join(SHARED, "fixtures/vocab")) if f.endswith(".gguf"))
        for name in fixtures:
            kv = gguf_metadata.read(os.path.join(SHARED, "fixtures/vocab", name))
            total += check(name, kv, folder, [random_text(r) for _ in range(TEXTS)])
        print("%d vocabularies, %d texts: 0 differences" % (len(fixtures), total), flush=True)
        total = 0
        for i in range(TEXTS):
            kv, special = random_vocabulary(r)
            total += check("random vocabulary %d" % i, kv, folder, [random_text(r, special) for _ in range(30)])
        print("%d random vocabularies, %d texts: 0 differences" % (TEXTS, total))


main()
