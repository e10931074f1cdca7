/* tokenize FILE.gguf ADD PARSE: reads texts from stdin, each a line of hexadecimal digits, and prints their ids,
 * a line a text. ADD and PARSE are 0 or 1. For comparing with other implementations. */
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

int main(int argc, char **argv)
{
    struct error err;
    struct gguf *g;
    struct tokenizer *t;
    if (argc < 4) {
        fprintf(stderr, "usage: tokenize FILE.gguf ADD PARSE\n");
        return 2;
    }
    if (gguf_open(argv[1], NULL, &g, &err) != STATUS_OK || tokenizer_new(g, NULL, &t, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    char *line = NULL;
    size_t capacity = 0;
    struct token_list ids = {0};
    while (getline(&line, &capacity, stdin) > 0) {
        struct span text = {line, 0};
        text.size = from_hex(line);
        ids.count = 0;
        if (tokenizer_encode_whole(t, text, atoi(argv[2]), atoi(argv[3]) ? TOKENIZE_PARSE_SPECIAL : 0, SIZE_MAX, &ids,
                                   &err) != STATUS_OK)
            printf("%s", err.text);
        for (size_t i = 0; i < ids.count; i++)
            printf(i ? " %d" : "%d", ids.data[i]);
        putchar('\n');
    }
    free(line);
    free(ids.data);
    tokenizer_free(t);
    gguf_close(g);
    return 0;
}
