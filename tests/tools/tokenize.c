/* tokenize FILE.gguf ADD PARSE: reads texts from stdin, each a line of hexadecimal digits, and prints their ids,
 * a line a text. ADD and PARSE are 0 or 1.
 * tokenize FILE.gguf vocabulary: prints the special ids, then a line a token: attributes, whether it ends a generation,
 * piece. For comparing with other implementations. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/tokenizer.h"

static int digit(char c)
{
    const char *all = "0123456789abcdef", *at = c ? strchr(all, c) : NULL;
    return at ? (int)(at - all) : -1;
}

/* In place; up to the first pair that is none. */
static size_t from_hex(char *line)
{
    size_t n = 0;
    for (; digit(line[2 * n]) >= 0 && digit(line[2 * n + 1]) >= 0; n++)
        line[n] = (char)(digit(line[2 * n]) * 16 + digit(line[2 * n + 1]));
    return n;
}

static void print_vocabulary(const struct tokenizer *t)
{
    const struct tokenizer_special *s = tokenizer_special(t);
    printf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n", s->bos, s->eos, s->eot, s->eom, s->unknown,
           s->separator, s->padding, s->mask, s->fim_pre, s->fim_suf, s->fim_mid, s->fim_pad, s->fim_rep, s->fim_sep,
           s->add_bos, s->add_eos, s->add_space_prefix);
    for (int32_t id = 0; id < (int32_t)tokenizer_size(t); id++) {
        struct span piece = tokenizer_piece(t, id);
        printf("%u %d ", tokenizer_attributes(t, id), tokenizer_is_eog(t, id));
        for (size_t i = 0; i < piece.size; i++)
            printf("%02x", (unsigned char)piece.data[i]);
        putchar('\n');
    }
}

static void print_ids(const struct tokenizer *t, bool add, unsigned flags)
{
    struct error err;
    char *line = NULL;
    size_t capacity = 0;
    struct token_list ids = {0};
    while (getline(&line, &capacity, stdin) > 0) {
        struct span text = {line, from_hex(line)};
        ids.count = 0;
        if (tokenizer_encode_whole(t, text, add, flags, SIZE_MAX, &ids, &err) != STATUS_OK)
            printf("%s", err.text);
        for (size_t i = 0; i < ids.count; i++)
            printf(i ? " %d" : "%d", ids.data[i]);
        putchar('\n');
    }
    free(line);
    free(ids.data);
}

int main(int argc, char **argv)
{
    struct error err;
    struct gguf *g;
    struct tokenizer *t;
    if (argc < 3) {
        fprintf(stderr, "usage: tokenize FILE.gguf ADD PARSE | tokenize FILE.gguf vocabulary\n");
        return 2;
    }
    if (gguf_open(argv[1], NULL, &g, &err) != STATUS_OK || tokenizer_new(g, NULL, &t, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    if (argc > 3)
        print_ids(t, atoi(argv[2]), atoi(argv[3]) ? TOKENIZE_PARSE_SPECIAL : 0);
    else
        print_vocabulary(t);
    tokenizer_free(t);
    gguf_close(g);
    return 0;
}
